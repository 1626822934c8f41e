"""Logistic regression on fixed features, fitted to its optimum by L-BFGS (Liu and Nocedal 1989).

The loss of a linear head on a frozen encoder is convex: its one optimum depends on no seed, batch or learning rate.
Minimised over weights W (L, D) and biases b (L), for N texts with features x (D), is

    mean of -log softmax(W x + b)[label]  +  l2 / (2 N) * sum(W^2),

scikit-learn's multinomial objective with C = 1 / l2 (for two labels, where scikit-learn fits one weight vector, not
two, C = 2 / l2). With the loss `sigmoid` each label stands against all others: the sum over labels of
-log s(+-(w x + b)), s the logistic function. Computed in float64, on the CPU, with a strong Wolfe line search: the same
bits each time.

Shape letters: N texts, D features, L labels.
Cost: 4 N D L multiply-adds an evaluation, two or three evaluations an iteration; memory 8 N D bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from lexmill.kinds.classifier import LinearProbe
from lexmill.kinds.classifier.solution import Solution
from lexmill.models.common.sparse_rows import Rows, linear, width_of

# Torch's L-BFGS ignores the curvature of steps that change the gradient by less than 1e-10: most steps near the optimum
# of a mean. A power of two moves that bound without rounding.
_SCALE = 2.0**20


@dataclass(frozen=True, kw_only=True)
class Iteration(Solution):
    """The state of the search after some iterations; `passes` counts evaluations of loss and gradient.

    Attributes:
        largest_gradient: of the whole objective; 0 at the optimum.
    """

    largest_gradient: float


def fit_logistic(
    features: Rows, labels: Tensor, classes: int, settings: LinearProbe, each: Callable[[Iteration], object]
) -> Iteration:
    """Fit from zero weights to the optimum.

    Args:
        features: (N, D) float64, dense or sparse.
        labels: (N) int64, below `classes`.
        each: called after each iteration.

    Returns:
        The last iteration; its `largest_gradient` is above `settings.tolerance` if `max_iterations` was too low or
        float64 too coarse.
    """
    texts, width = len(labels), width_of(features)
    of_label = functional.one_hot(labels, classes).double()
    weight = torch.zeros(classes, width, dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(classes, dtype=torch.float64, requires_grad=True)
    search = torch.optim.LBFGS(
        [weight, bias],
        max_iter=1,
        max_eval=25,
        history_size=settings.history,
        tolerance_grad=0.0,
        tolerance_change=0.0,
        line_search_fn="strong_wolfe",
    )
    passes = 0

    def evaluate() -> tuple[Tensor, Tensor]:
        nonlocal passes
        passes += 1
        search.zero_grad()
        logits = linear(features, weight, bias)
        if settings.loss == "softmax":
            loss = functional.cross_entropy(logits, labels)
        else:
            loss = functional.binary_cross_entropy_with_logits(logits, of_label, reduction="sum") / texts
        objective = loss + settings.l2 / (2 * texts) * weight.square().sum()
        (_SCALE * objective).backward()
        return loss, objective

    def now(number: int) -> Iteration:
        loss, _ = evaluate()
        assert weight.grad is not None
        assert bias.grad is not None
        largest = max(float(weight.grad.abs().max()), float(bias.grad.abs().max())) / _SCALE
        return Iteration(
            number=number,
            passes=passes,
            loss=float(loss.detach()),
            weight=weight.detach().clone(),
            bias=bias.detach().clone(),
            largest_gradient=largest,
        )

    newest = now(0)
    while newest.largest_gradient > settings.tolerance and newest.number < settings.max_iterations:
        before = newest
        search.step(lambda: _SCALE * float(evaluate()[1].detach()))
        newest = now(before.number + 1)
        each(newest)
        if torch.equal(newest.weight, before.weight) and torch.equal(newest.bias, before.bias):
            break  # rounding exceeds what is left to gain
    if settings.loss == "sigmoid" and classes == 2:
        # The two classes are each other's opposite: half of each makes the softmax the logistic function of one.
        return replace(newest, weight=newest.weight / 2, bias=newest.bias / 2)
    return newest
