"""The short way to the next token's logits beside a forward pass over everything."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from lexmill.models.gpt.model import GPT
from lexmill.models.gpt.shape import Shape as GPTShape
from lexmill.models.llama.model import Llama
from lexmill.models.llama.shape import Shape as LlamaShape
from lexmill.models.lstm.model import LSTM
from lexmill.models.lstm.shape import Shape as LSTMShape

SHAPES: dict[str, Any] = {
    "pre": GPTShape(2, 2, 16, 80),
    "post": GPTShape(2, 2, 16, 80, norm="post"),
    "exact GELU": GPTShape(2, 2, 16, 80, activation="gelu"),
    "head width": GPTShape(2, 3, 16, 80, d_head=4),
    "llama": LlamaShape(2, 4, 2, 16, 24, 80, tie_embeddings=False),
    "lstm": LSTMShape(2, 16, 80),
}
V = 23


def made(name: str) -> Any:
    torch.manual_seed(0)
    family = {LlamaShape: Llama, LSTMShape: LSTM}.get(type(SHAPES[name]), GPT)
    module: nn.Module = family(SHAPES[name], V)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)  # biases and norms too
    return module.eval()


@pytest.mark.parametrize("name", SHAPES)
def test_the_logits_are_those_of_a_whole_pass(name: str) -> None:
    module = made(name)
    tokens = torch.randint(0, V, (3, 80))  # the cache grows beyond what it reserves at first
    with torch.no_grad():
        whole = module(tokens)  # (B, T, V)
    with torch.inference_mode():
        cache = module.new_cache(3)
        torch.testing.assert_close(module.next_logits(tokens[:, :5], cache), whole[:, 4])
        for place in range(5, 80):
            found = module.next_logits(tokens[:, place : place + 1], cache)
            torch.testing.assert_close(found, whole[:, place], rtol=1e-4, atol=1e-5)
            assert cache.length == place + 1
            if place == 40:
                rows = torch.tensor([2, 0])
                cache.reorder(rows)
                tokens, whole = tokens[rows], whole[rows]


@pytest.mark.parametrize("name", SHAPES)
def test_bfloat16_gives_nearly_the_same_logits(name: str) -> None:
    tokens = torch.randint(0, V, (4, 30))
    with torch.inference_mode():
        whole = made(name)(tokens)  # (B, T, V)
        low = made(name).bfloat16()
        cache = low.new_cache(4)
        found = [low.next_logits(tokens[:, place : place + 1], cache) for place in range(30)]
    assert {one.dtype for one in found} == {torch.bfloat16}
    apart = (torch.stack(found, dim=1).float() - whole).square().mean().sqrt()
    assert 0 < apart < 0.03 * whole.std()


def test_no_position_beyond_the_context() -> None:
    module = made("pre")
    cache = module.new_cache(1)
    with torch.inference_mode():
        module.next_logits(torch.zeros(1, 80, dtype=torch.int64), cache)
        with pytest.raises(ValueError, match="81 positions"):
            module.next_logits(torch.zeros(1, 1, dtype=torch.int64), cache)


def test_one_token_is_decoded_without_the_blocks_calls() -> None:
    module = made("pre")
    called = list[bool]()
    module.blocks[0].register_forward_pre_hook(lambda *_: called.append(True))
    cache = module.new_cache(2)
    with torch.inference_mode():
        module.next_logits(torch.zeros(2, 3, dtype=torch.int64), cache)
        assert called == [True]
        module.next_logits(torch.zeros(2, 1, dtype=torch.int64), cache)
    assert called == [True]
