"""The modern encoder beside a loop written from its description; padding and shifts change nothing."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from lexmill.models import build
from lexmill.models.common.attention import attend, key_mask

SHAPE = {"n_layer": 2, "n_head": 2, "d_model": 8, "d_ffn": 12, "max_positions": 9, "rope_theta": 100.0}


def made(**changes: Any) -> Any:
    torch.manual_seed(0)
    module = build({"family": "modern_encoder", "shape": SHAPE | changes, "vocab_size": 30}).double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return module.eval()


def normed(x: Tensor, weight: Tensor, kind: str) -> Tensor:
    if kind == "rms":
        return x / (x.square().mean() + 1e-5).sqrt() * weight
    return (x - x.mean()) / (x.var(unbiased=False) + 1e-5).sqrt() * weight


def turned(x: Tensor, place: int) -> Tensor:
    """Rotate the pairs (i, i + K / 2) of a head."""
    half, out = len(x) // 2, x.clone()
    for i in range(half):
        angle = place * 100.0 ** (-2 * i / len(x))
        out[i] = x[i] * math.cos(angle) - x[i + half] * math.sin(angle)
        out[i + half] = x[i + half] * math.cos(angle) + x[i] * math.sin(angle)
    return out


@torch.no_grad()
@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_it_computes_what_its_description_says(kind: str) -> None:
    module = made(norm_kind=kind)
    ids = [3, 7, 7, 1, 29]
    rows = [normed(module.embedding.weight[i], module.embedding_norm.weight, kind) for i in ids]
    for block in module.blocks:
        inputs = [normed(row, block.attention_norm.weight, kind) for row in rows]
        heads: list[list[Tensor]] = [[], []]
        for head in range(2):
            part = slice(4 * head, 4 * head + 4)
            query, key = (
                [turned((of.weight @ x)[part], at) for at, x in enumerate(inputs)] for of in (block.query, block.key)
            )
            value = [(block.value.weight @ x)[part] for x in inputs]
            for at in range(len(ids)):
                share = torch.stack([query[at] @ one / 2 for one in key]).softmax(0)
                heads[head].append(sum((s * v for s, v in zip(share, value, strict=True)), torch.zeros(4).double()))
        rows = [row + block.output.weight @ torch.cat([heads[0][at], heads[1][at]]) for at, row in enumerate(rows)]
        for at, row in enumerate(rows):
            x, inner = normed(row, block.feed_forward_norm.weight, kind), block.feed_forward
            gate = torch.nn.functional.gelu(inner.gate.weight @ x)
            rows[at] = row + inner.output.weight @ (gate * (inner.expand.weight @ x))
    wanted = torch.stack([normed(row, module.norm.weight, kind) for row in rows])
    tokens = torch.tensor([ids])
    found = module.hidden(tokens, torch.ones_like(tokens, dtype=torch.bool))[0]
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    assert not any(name.endswith("bias") for name, _ in module.named_parameters())


@torch.no_grad()
def test_padding_changes_nothing() -> None:
    module = made()
    tokens = torch.randint(30, (1, 5))
    alone = module.hidden(tokens, torch.ones_like(tokens, dtype=torch.bool))
    padded = torch.cat([tokens, torch.full((1, 4), 9)], 1)
    found = module.hidden(padded, torch.arange(9)[None] < 5)
    torch.testing.assert_close(found[:, :5], alone)
    with pytest.raises(ValueError, match="10 tokens, but the encoder has 9 positions"):
        module.hidden(torch.ones(1, 10, dtype=torch.long), torch.ones(1, 10, dtype=torch.bool))


@torch.no_grad()
def test_only_distances_count() -> None:
    """The hidden states of a text do not change when positions are shifted."""
    module = made(max_positions=40)
    tokens = torch.randint(30, (1, 6))
    shifted = torch.cat([torch.full((1, 20), 5), tokens], 1)
    mask = torch.arange(26)[None] >= 20
    alone = module.hidden(tokens, torch.ones_like(tokens, dtype=torch.bool))
    torch.testing.assert_close(module.hidden(shifted, mask)[:, 20:], alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("dtype", "close"), [(torch.float64, 1e-6), (torch.float32, 1e-5)])
def test_texts_laid_end_to_end_have_the_states_and_gradients_of_masked_padding(
    dtype: torch.dtype, close: float
) -> None:
    module = made().to(dtype)
    tokens = torch.randint(30, (5, 9))
    mask = torch.arange(9) < torch.tensor([9, 6, 6, 1, 0])[:, None]  # one text is all padding
    attention = partial(attend, mask=key_mask(mask), causal=False)
    padded = module.through(tokens, torch.arange(9), attention)
    wanted = torch.autograd.grad(padded[mask].square().sum(), list(module.parameters()))
    read: list[int] = []
    module.embedding.register_forward_hook(lambda _, given, __: read.append(given[0].numel()))
    found = module.hidden(tokens, mask)
    assert read == [22], "no padding is read"
    torch.testing.assert_close(found[mask], padded[mask], rtol=close, atol=close)
    assert not found[~mask].any()
    gradients = torch.autograd.grad(found[mask].square().sum(), list(module.parameters()))
    for one, other in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=100 * close, atol=100 * close)
    assert module.hidden(tokens[4:], mask[4:]).isfinite().all()
    whole = torch.ones_like(mask)
    assert torch.equal(
        module.hidden(tokens, whole), module.through(tokens, torch.arange(9), partial(attend, mask=None, causal=False))
    )
