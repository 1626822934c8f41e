"""Optimizers and learning-rate schedules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lexmill.base.strict import spec
from lexmill.params.length import Length


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent, with momentum (Polyak 1964) or Nesterov's form of it (Sutskever et al. 2013)."""

    name: Literal["sgd"]
    lr: float = spec("peak learning rate", above=0, high=10)
    momentum: float = spec("decay of the velocity; 0: none", 0.0, low=0, below=1)
    nesterov: bool = spec("look ahead along the velocity", False)
    weight_decay: float = spec("L2 decay on matrices", 0.0, low=0)

    def errors(self) -> list[str]:
        return ["nesterov: it needs a momentum above 0"] if self.nesterov and not self.momentum else []


@dataclass(frozen=True)
class AdaGrad:
    """AdaGrad (Duchi et al. 2011)."""

    name: Literal["adagrad"]
    lr: float = spec("peak learning rate", above=0, high=1)
    eps: float = spec("added to the denominator", 1e-10, above=0, high=1)
    weight_decay: float = spec("L2 decay on matrices", 0.0, low=0)


@dataclass(frozen=True)
class AdaDelta:
    """AdaDelta (Zeiler 2012)."""

    name: Literal["adadelta"]
    lr: float = spec("peak learning rate; 1 is the paper's", above=0, high=10)
    rho: float = spec("decay of both averages", 0.9, low=0, below=1)
    eps: float = spec("added under both roots", 1e-6, above=0, high=1)
    weight_decay: float = spec("L2 decay on matrices", 0.0, low=0)


@dataclass(frozen=True)
class RMSprop:
    """RMSprop (Tieleman and Hinton 2012)."""

    name: Literal["rmsprop"]
    lr: float = spec("peak learning rate", above=0, high=1)
    alpha: float = spec("decay of the squared gradient", 0.99, low=0, below=1)
    eps: float = spec("added to the denominator", 1e-8, above=0, high=1)
    momentum: float = spec("decay of the velocity; 0: none", 0.0, low=0, below=1)
    weight_decay: float = spec("L2 decay on matrices", 0.0, low=0)


@dataclass(frozen=True)
class Adam:
    """Adam (Kingma and Ba 2015); its weight decay is L2, as in the paper's time."""

    name: Literal["adam"]
    lr: float = spec("peak learning rate", above=0, high=1)
    beta1: float = spec("decay of the first moment", 0.9, low=0, below=1)
    beta2: float = spec("decay of the second moment", 0.999, low=0, below=1)
    eps: float = spec("added to the denominator", 1e-8, above=0, high=1)
    weight_decay: float = spec("L2 decay on matrices", 0.0, low=0)


@dataclass(frozen=True)
class AdamW:
    """AdamW (Loshchilov and Hutter 2019); decay only on matrices."""

    name: Literal["adamw"]
    lr: float = spec("peak learning rate", above=0, high=1)
    beta1: float = spec("decay of the first moment", 0.9, low=0, below=1)
    beta2: float = spec("decay of the second moment", 0.95, low=0, below=1)
    eps: float = spec("added to the denominator", 1e-8, above=0, high=1)
    weight_decay: float = spec("decoupled weight decay on matrices", 0.1, low=0)


@dataclass(frozen=True)
class Muon:
    """Muon (Jordan et al. 2024) on the matrices of the blocks; AdamW on embeddings, output matrix and vectors."""

    name: Literal["muon"]
    lr: float = spec("peak learning rate of the matrices", above=0, high=1)
    momentum: float = spec("decay of the velocity (Nesterov's form)", 0.95, low=0, below=1)
    weight_decay: float = spec("decoupled weight decay on all matrices", 0.1, low=0)
    adamw_lr: float = spec("peak learning rate of all else", 0.001, above=0, high=1)
    beta1: float = spec("AdamW's decay of the first moment", 0.9, low=0, below=1)
    beta2: float = spec("AdamW's decay of the second moment", 0.95, low=0, below=1)
    eps: float = spec("added to AdamW's denominator", 1e-8, above=0, high=1)


Optimizer = SGD | AdaGrad | AdaDelta | RMSprop | Adam | AdamW | Muon

_NONE = Length(0, "steps")


@dataclass(frozen=True)
class ConstantSchedule:
    """Linear warm-up, then the peak for good."""

    name: Literal["constant"]
    warmup: Length = spec("linear warm-up", _NONE)


@dataclass(frozen=True)
class CosineSchedule:
    """Linear warm-up, then half a cosine down to a share of the peak."""

    name: Literal["cosine"]
    warmup: Length = spec("linear warm-up", _NONE)
    final_fraction: float = spec("last learning rate over the peak", 0.1, low=0, high=1)


@dataclass(frozen=True)
class InverseSquareRootSchedule:
    """Linear warm-up, then peak * sqrt(warmup / step) (Vaswani et al. 2017)."""

    name: Literal["inverse_square_root"]
    warmup: Length = spec("linear warm-up", Length(1000, "steps"))

    def errors(self) -> list[str]:
        return [] if self.warmup.amount > 0 else ["warmup: this schedule needs one, at least '1 steps'"]


@dataclass(frozen=True)
class LinearSchedule:
    """Linear warm-up, then a straight line down to a share of the peak."""

    name: Literal["linear"]
    warmup: Length = spec("linear warm-up", _NONE)
    final_fraction: float = spec("last learning rate over the peak", 0.0, low=0, high=1)


@dataclass(frozen=True)
class WarmupStableDecaySchedule:
    """Linear warm-up, the peak, then a straight line down over the last part (Hu et al. 2024)."""

    name: Literal["warmup_stable_decay"]
    warmup: Length = spec("linear warm-up", _NONE)
    decay: Length = spec("the last part, in which the rate falls", Length(200, "steps"))
    final_fraction: float = spec("last learning rate over the peak", 0.0, low=0, high=1)


Schedule = ConstantSchedule | CosineSchedule | InverseSquareRootSchedule | LinearSchedule | WarmupStableDecaySchedule
