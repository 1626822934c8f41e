"""GloVe, beside the paper's equation by hand and written out over its own two matrices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from lexmill.models.glove.model import GloVe
from lexmill.models.glove.shape import TINY, Shape


def made(total: Any, difference: Any, bias: Any, context_bias: Any) -> GloVe:
    module = GloVe(Shape(**{**TINY, "d_model": np.shape(total)[1]}), len(total))
    with torch.no_grad():
        module.embedding.weight.copy_(torch.as_tensor(total))
        module.difference.weight.copy_(torch.as_tensor(difference))
        module.bias.copy_(torch.as_tensor(bias))
        module.context_bias.copy_(torch.as_tensor(context_bias))
    return module


def test_three_words_by_hand() -> None:
    """w = 1, 1, 1 and w~ = 0, -1, 1 are the sums 1, 0, 2 and the differences 1, 2, 0; x_max is 10."""
    module = made([[1.0], [0.0], [2.0]], [[1.0], [2.0], [0.0]], [0.5, 0, 0], [0, 0.25, 0])
    loss = module(torch.tensor([0, 2]), torch.tensor([1, 0]), torch.tensor([5.0, 20.0]))
    # Cell (0, 1): 0.5^0.75 (1 * -1 + 0.5 + 0.25 - log 5)^2; cell (2, 0): 1 * (1 * 0 - log 20)^2.
    assert loss.item() == pytest.approx(0.5946036 * (-0.25 - 1.6094379) ** 2 + 2.9957323**2)
    loss.backward()
    assert module.bias.grad is not None
    assert module.embedding.weight.grad is not None
    inner = 2 * 0.5946036 * (-0.25 - 1.6094379)  # the derivative of the first cell by what is fitted
    assert module.bias.grad.tolist() == pytest.approx([inner, 0, 2 * -2.9957323])
    # By s_0: half of w~_1 of the first cell, where it is a row, and half of w_2 of the second, where it is a column.
    assert module.embedding.weight.grad[0].item() == pytest.approx(inner * -1 / 2 + 2 * -2.9957323 * 1 / 2)


def test_the_loss_is_the_papers_equation_over_two_matrices_whose_sum_is_the_embedding() -> None:
    random = np.random.default_rng(0)
    w, w_context = random.normal(size=(2, 6, 4))
    b, b_context = random.normal(size=(2, 6))
    module = made(w + w_context, w - w_context, b, b_context)
    rows, columns = random.integers(6, size=(2, 20))
    counts = random.exponential(8, size=20)
    wanted = 0.0
    for i, j, x in zip(rows, columns, counts, strict=True):
        weight = (x / 10) ** 0.75 if x < 10 else 1.0
        wanted += weight * (w[i] @ w_context[j] + b[i] + b_context[j] - math.log(x)) ** 2
    assert counts.max() > 10 > counts.min()
    found = module(torch.from_numpy(rows), torch.from_numpy(columns), torch.from_numpy(counts).float())
    assert found.item() == pytest.approx(wanted, rel=1e-5)
