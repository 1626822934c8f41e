"""Skip-gram with negative sampling, beside the paper's equation by hand and written out."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from lexmill.models.skip_gram.model import SkipGram
from lexmill.models.skip_gram.shape import TINY, Shape


def made(v: list[list[float]], u: list[list[float]]) -> SkipGram:
    module = SkipGram(Shape(**{**TINY, "d_model": len(v[0])}), len(v))
    with torch.no_grad():
        module.embedding.weight.copy_(torch.tensor(v))
        module.contexts.weight.copy_(torch.tensor(u))
    return module


def test_three_words_by_hand() -> None:
    """v = 1, 2, -1 and u = 0.5, -1, 0; the pair (0, 1) against 2 and 0: products -1, 0 and 0.5."""
    module = made([[1.0], [2.0], [-1.0]], [[0.5], [-1.0], [0.0]])
    loss = module(torch.tensor([0]), torch.tensor([1]), torch.tensor([[2, 0]]))
    assert loss.item() == pytest.approx(1.3132617 + 0.6931472 + 0.9740770)  # log(1 + e), log 2, log(1 + e^0.5)
    loss.backward()
    assert module.embedding.weight.grad is not None
    assert module.contexts.weight.grad is not None
    # s(-1) - 1 = -0.7310586 and s(0.5) = 0.6224593 times the other vector.
    assert module.embedding.weight.grad.flatten().tolist() == pytest.approx([0.7310586 + 0.3112297, 0, 0])
    assert module.contexts.weight.grad.flatten().tolist() == pytest.approx([0.6224593, -0.7310586, 0.5])


def test_the_loss_is_the_papers_equation() -> None:
    random = np.random.default_rng(0)
    v, u = random.normal(size=(2, 6, 4))
    module = made(v.tolist(), u.tolist())
    centres, contexts, negatives = (random.integers(6, size=shape) for shape in (9, 9, (9, 3)))

    def logistic(x: float) -> float:
        return 1 / (1 + math.exp(-x))

    wanted = 0.0
    for centre, context, drawn in zip(centres, contexts, negatives, strict=True):
        wanted -= math.log(logistic(u[context] @ v[centre]))
        for negative in drawn:
            wanted -= math.log(logistic(-u[negative] @ v[centre]))
    assert module(*map(torch.from_numpy, (centres, contexts, negatives))).item() == pytest.approx(wanted, rel=1e-6)


def test_no_pair_is_no_loss() -> None:
    module = made([[1.0], [2.0]], [[1.0], [2.0]])
    none = torch.empty(0, dtype=torch.int64)
    assert module(none, none, none.reshape(0, 3)).item() == 0
