"""The convolutional encoder-decoder beside its equations, a token and a block at a time."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from lexmill import models
from lexmill.base import strict
from lexmill.models.conv_seq2seq.shape import Shape

from .test_families import V, made

HALF = math.sqrt(0.5)


def gated(block: Any, rows: list[Tensor]) -> Tensor:
    """The result (D,) of a block for the K vectors that its kernel covers."""
    weight, both = block.convolution.weight, block.convolution.bias.clone()
    for k, row in enumerate(rows):
        both += weight[:, :, k] @ row
    value, gate = both.chunk(2)
    return value * torch.sigmoid(gate)


def slow_logits(module: Any, source: list[int], target: list[int]) -> Tensor:
    """(T, V), from the equations."""
    zero, side = torch.zeros(module.shape.d_model), module.shape.kernel // 2
    embedded = [module.embedding.weight[t] + module.source_positions.weight[i] for i, t in enumerate(source)]
    hidden = [module.encoder_in(row) for row in embedded]
    for block in module.encoder:
        around = [zero] * side + hidden + [zero] * side
        found = [gated(block, around[i : i + module.shape.kernel]) for i in range(len(hidden))]
        hidden = [HALF * (new + old) for new, old in zip(found, hidden, strict=True)]
    keys = [module.encoder_out(row) for row in hidden]
    values = [HALF * (key + row) * math.sqrt(len(source)) for key, row in zip(keys, embedded, strict=True)]
    embedded = [module.embedding.weight[t] + module.target_positions.weight[i] for i, t in enumerate(target)]
    hidden = [module.decoder_in(row) for row in embedded]
    for block in module.decoder:
        before = [zero] * (module.shape.kernel - 1) + hidden
        result = []
        for i, old in enumerate(hidden):
            found = gated(block, before[i : i + module.shape.kernel])
            query = HALF * (block.query(found) + embedded[i])
            shares = torch.stack([query @ key for key in keys]).softmax(0)
            context = sum(share * value for share, value in zip(shares, values, strict=True))
            result.append(HALF * (HALF * (found + block.output(context)) + old))
        hidden = result
    return torch.stack([module.embedding.weight @ module.decoder_out(row) for row in hidden])


@pytest.mark.parametrize("name", ["conv_seq2seq", "conv_seq2seq+1", "conv_seq2seq+2"])
@torch.no_grad()
def test_logits_are_those_of_the_equations(name: str) -> None:
    module = made(name)
    torch.manual_seed(1)
    source, target = torch.randint(V, (2, 6)), torch.randint(V, (2, 5))
    mask = torch.arange(6) < torch.tensor([6, 4])[:, None]
    found = module(source, mask, target)
    for b, size in enumerate((6, 4)):
        expected = slow_logits(module, source[b, :size].tolist(), target[b].tolist())
        torch.testing.assert_close(found[b], expected, rtol=1e-4, atol=1e-5)


def test_an_even_kernel_has_no_middle() -> None:
    errors: list[str] = []
    strict.build(Shape, {**models.family("conv_seq2seq").tiny, "kernel": 4}, errors)
    assert errors == ["kernel: 4 is even; the token in the middle needs an odd one"]


def test_training_flops_count_each_matrix_once_a_token() -> None:
    shape = Shape(2, 3, d_embedding=10, d_model=12, kernel=5, max_positions=9)
    module = models.build({"family": "conv_seq2seq", "shape": vars(shape), "vocab_size": V})
    source = 10 * 12 + 2 * 5 * 12 * 24 + 12 * 10
    target = 10 * 12 + 3 * (5 * 12 * 24 + 2 * 10 * 12) + 12 * 10 + 10 * V
    assert module.training_flops(7, 5) == 6 * (7 * source + 5 * target)
