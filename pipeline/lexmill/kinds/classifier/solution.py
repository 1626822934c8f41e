"""A head's weights on the way to a solution, and how good they are. Shape letters: N texts, D features, L labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import Tensor
from torch.nn import functional

from lexmill.kinds.classifier.calibration import fit_temperature
from lexmill.models.common.sparse_rows import Rows, linear


@dataclass(frozen=True)
class Texts:
    """Texts as features.

    Attributes:
        features: (N, D) float64, dense or sparse.
        labels: (N,) int64, below `classes`.
        classes: L.
    """

    features: Rows
    labels: Tensor
    classes: int

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, kw_only=True)
class Solution:
    """A head.

    Attributes:
        number: iterations made, or passes where there are no others.
        passes: passes over train so far.
        loss: mean nats per text of train, without any penalty.
        weight, bias: (L, D) and (L), float64.
    """

    number: int
    passes: int
    loss: float
    weight: Tensor
    bias: Tensor


Note = Callable[[Solution], object]


def measure(texts: Texts, weight: Tensor, bias: Tensor) -> tuple[float, float]:
    """Return the mean nats of the right labels, and the share of texts with the right one first."""
    logits = linear(texts.features, weight, bias)
    loss = float(functional.cross_entropy(logits, texts.labels))
    return loss, float((logits.argmax(dim=1) == texts.labels).double().mean())


def with_temperature(solution: Solution, valid: Texts, train: Texts) -> Solution:
    """Return the head with its logits divided by the temperature that suits valid best.

    For margins, whose scale means nothing. No prediction changes.
    """
    logits = linear(valid.features, solution.weight, solution.bias)
    temperature = fit_temperature(logits.numpy(), valid.labels.numpy())
    weight, bias = solution.weight / temperature, solution.bias / temperature
    return replace(solution, weight=weight, bias=bias, loss=measure(train, weight, bias)[0])
