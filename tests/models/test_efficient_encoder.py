"""Attention of linear cost in encoders: beside loops written from the papers, and beside softmax attention."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from lexmill.models import build
from lexmill.models.common.random_features import LEAST
from lexmill.models.efficient_encoder.model import Linformer, Performer, Softmax
from lexmill.models.efficient_encoder.shape import Shape

SHAPE = Shape(n_layer=1, n_head=2, d_model=8, d_ffn=16, max_positions=9, n_feature=3)
LENGTHS = (7, 4)


def given() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Queries, keys and values of two texts, the second padded with large numbers."""
    torch.manual_seed(1)
    mask = torch.arange(7)[None] < torch.tensor(LENGTHS)[:, None]
    rows = [torch.randn(2, 2, 7, 4, dtype=torch.float64) for _ in range(3)]
    for one in rows:
        one[1, :, 4:] = 50.0
        one.requires_grad_()
    return rows[0], rows[1], rows[2], mask


def real(found: Tensor) -> list[Tensor]:
    return [found[text, :, :length] for text, length in enumerate(LENGTHS)]


def same(found: list[Tensor], wanted: list[Tensor], sources: list[Tensor]) -> None:
    """Outputs and all gradients agree, and padding has none."""
    torch.testing.assert_close(found, wanted)
    upstream = [torch.linspace(-1, 1, one.numel(), dtype=torch.float64).view_as(one) for one in found]
    of_found, of_wanted = (torch.autograd.grad(one, sources, upstream) for one in (found, wanted))
    torch.testing.assert_close(of_found, of_wanted)
    assert not any(one[1, :, 4:].any() for one in of_found[:3])


def test_linformer_is_softmax_over_sums_of_positions() -> None:
    query, key, value, mask = given()
    torch.manual_seed(2)
    module = Linformer(SHAPE).double()
    found = real(module(query, key, value, mask))
    wanted = [torch.zeros_like(one) for one in found]
    for text, length in enumerate(LENGTHS):
        for head in range(2):
            keys = [sum(module.of_keys.weight[m, at] * key[text, head, at] for at in range(length)) for m in range(3)]
            values = [
                sum(module.of_values.weight[m, at] * value[text, head, at] for at in range(length)) for m in range(3)
            ]
            for at in range(length):
                scores = torch.stack([query[text, head, at] @ one / 2 for one in keys])
                share = scores.softmax(0)
                wanted[text][head, at] = sum(share[m] * values[m] for m in range(3))
    same(found, wanted, [query, key, value, *module.parameters()])


def test_performer_is_the_mean_weighted_by_products_of_features() -> None:
    query, key, value, mask = given()
    module = Performer(SHAPE)
    found = real(module(query, key, value, mask))
    wanted = [torch.zeros_like(one) for one in found]

    def phi(rows: Tensor) -> Tensor:
        """Features of one query or of all keys, (N, K) -> (N, M): the largest is 1, and `LEAST` more."""
        scaled = rows / math.sqrt(2)  # K^(1/4) of 4
        logs = torch.stack([module.features.double() @ one - one.square().sum() / 2 for one in scaled])
        return (logs - logs.max()).exp() + LEAST

    for text, length in enumerate(LENGTHS):
        for head in range(2):
            keys = phi(key[text, head, :length])
            for at in range(length):
                weights = (keys * phi(query[text, head, at : at + 1])).sum(1)
                wanted[text][head, at] = (weights[:, None] * value[text, head, :length]).sum(0) / weights.sum()
    same(found, wanted, [query, key, value])


def test_many_random_features_give_softmax_attention() -> None:
    query, key, value, mask = given()
    many = Performer(Shape(n_layer=1, n_head=2, d_model=8, d_ffn=16, n_feature=4096))
    exact = Softmax()(query / 2, key / 2, value, mask)
    near = many(query / 2, key / 2, value, mask)
    for one, other in zip(real(near), real(exact), strict=True):
        torch.testing.assert_close(one, other, atol=0.1, rtol=0)
    few = Performer(SHAPE)(query / 2, key / 2, value, mask)
    assert (real(few)[0] - real(exact)[0]).abs().mean() > 3 * (real(near)[0] - real(exact)[0]).abs().mean()


@pytest.mark.parametrize("attention", ["softmax", "linformer", "performer"])
def test_a_text_too_long_is_refused_and_gradients_reach_every_weight(attention: str) -> None:
    shape = {**vars(SHAPE), "attention": attention}
    module = build({"family": "efficient_encoder", "shape": shape, "vocab_size": 20})
    tokens = torch.arange(18).view(2, 9)
    module(tokens, torch.ones(2, 9, dtype=torch.bool)).square().sum().backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0 or name.endswith("key.bias"), name  # softmax ignores what all keys share
    with pytest.raises(ValueError, match="10 tokens, but the encoder has 9 positions"):
        module(torch.zeros(1, 10, dtype=torch.int64), torch.ones(1, 10, dtype=torch.bool))
