"""The translator without an encoder beside a Llama with the same weights that reads source and target at once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from lexmill.models import build
from lexmill.models.common.rotary import rotate
from lexmill.models.common.state import load_weights, weights

V = 23
SHAPE = {"n_layer": 3, "n_head": 4, "n_kv_head": 2, "d_model": 16, "d_ffn": 24, "max_positions": 12, "dropout": 0.0}
SOURCE, TARGET = [5, 9, 7, 20, 11, 6], [3, 8, 8, 14, 5]


def made(**options: Any) -> tuple[Any, Any]:
    """The translator, and the language model."""
    torch.manual_seed(0)
    module: Any = build({"family": "decoder_translator", "shape": {**SHAPE, **options}, "vocab_size": V})
    shape = {key: value for key, value in SHAPE.items() if key != "max_positions"}
    llama: Any = build({"family": "llama", "shape": {**shape, "context": 24}, "vocab_size": V})
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    load_weights(llama, weights(module))
    return module.eval(), llama.eval()


def seen(prefix: bool) -> Tensor:
    """Which positions of source and target see which, (1, 1, S + T, S + T)."""
    mask = torch.ones(len(SOURCE) + len(TARGET), len(SOURCE) + len(TARGET)).tril().bool()
    if prefix:
        mask[: len(SOURCE), : len(SOURCE)] = True
    return mask[None, None]


def before_last(llama: Any, prefix: bool) -> tuple[Tensor, Any]:
    """The input of the last block, and what the blocks share."""
    tokens = torch.tensor([SOURCE + TARGET])
    by, _ = llama.blocks[0].attention.shared(tokens, 0, None)
    hidden = llama.embedding(tokens)
    for block in llama.blocks[:-1]:
        hidden = block(hidden, (by, seen(prefix)), None)
    return hidden, (by, seen(prefix))


@pytest.mark.parametrize("prefix", [False, True])
@pytest.mark.parametrize("padding", [0, 3])
@torch.no_grad()
def test_logits_are_those_of_a_language_model_of_both(prefix: bool, padding: int) -> None:
    module, llama = made(prefix=prefix)
    hidden, shared = before_last(llama, prefix)
    expected = llama.logits(llama.norm(llama.blocks[-1](hidden, shared, None)))[0, len(SOURCE) :]
    if not prefix:
        torch.testing.assert_close(expected, llama(torch.tensor([SOURCE + TARGET]))[0, len(SOURCE) :])
    source = torch.tensor([SOURCE + [9] * padding])
    mask = torch.arange(source.shape[1])[None] < len(SOURCE)
    torch.testing.assert_close(module(source, mask, torch.tensor([TARGET]))[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("prefix", [False, True])
@torch.no_grad()
def test_the_alignment_is_the_last_blocks_weights_as_shares_of_the_source(prefix: bool) -> None:
    module, llama = made(prefix=prefix)
    hidden, (by, mask) = before_last(llama, prefix)
    block = llama.blocks[-1]
    normed = block.attention_norm(hidden)
    query, key = (
        rotate(one(normed).unflatten(-1, (-1, 4)), by)[0] for one in (block.attention.query, block.attention.key)
    )
    scores = torch.einsum("thk,shk->hts", query, key.repeat_interleave(2, dim=1)) / 2  # sqrt(K)
    found = scores.masked_fill(~mask[0], -torch.inf).softmax(-1).mean(0)[len(SOURCE) :, : len(SOURCE)]
    source = torch.tensor([SOURCE])
    alignment = module.alignment(source, torch.ones_like(source, dtype=torch.bool), torch.tensor([TARGET]))[0]
    torch.testing.assert_close(alignment, found / found.sum(1, keepdim=True), rtol=1e-4, atol=1e-5)


def test_training_flops_are_those_of_the_matrix_products() -> None:
    module, _ = made()
    d, f, k = 16, 24, 4
    block = d * d + 2 * d * 2 * k + d * d + 3 * d * f
    source = 2 * block + 2 * d * 2 * k  # of the last block only the keys and values
    assert module.training_flops(10, 7) == 6 * (10 * source + 7 * (3 * block + d * V))
