"""A head's weights on the way to a solution, and how good they are. Shape letters: N texts, D features, L labels."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import Tensor
from torch.nn import functional

from lexmill.models.common.sparse_rows import Rows, linear

_LEAST, _MOST = 1e-3, 20.0  # of the largest logit: beyond, texts that are all right have no lowest loss


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

    def scaled(self, factor: float) -> Solution:
        """Return the head with all logits times `factor`."""
        return replace(self, weight=self.weight * factor, bias=self.bias * factor)


Note = Callable[[Solution], object]


def measure(texts: Texts, weight: Tensor, bias: Tensor) -> tuple[float, float]:
    """Return the mean nats of the right labels, and the share of texts with the right one first."""
    logits = linear(texts.features, weight, bias)
    loss = float(functional.cross_entropy(logits, texts.labels))
    return loss, float((logits.argmax(dim=1) == texts.labels).double().mean())


def with_temperature(solution: Solution, valid: Texts, train: Texts) -> Solution:
    """Return the head with its logits divided by the number that gives the lowest loss on valid (Guo et al. 2017).

    For margins, whose scale means nothing. No prediction changes. The loss is convex in the factor: a search by the
    golden section over its logarithm.
    """
    logits = linear(valid.features, solution.weight, solution.bias)
    largest = float(logits.abs().max())
    if not largest:
        return solution

    def loss(log_factor: float) -> float:
        return float(functional.cross_entropy(logits * math.exp(log_factor), valid.labels))

    low, high, golden = math.log(_LEAST / largest), math.log(_MOST / largest), (5**0.5 - 1) / 2
    while high - low > 1e-4:
        first, second = high - golden * (high - low), low + golden * (high - low)
        low, high = (low, second) if loss(first) <= loss(second) else (first, high)
    found = solution.scaled(math.exp((low + high) / 2))
    return replace(found, loss=measure(train, found.weight, found.bias)[0])
