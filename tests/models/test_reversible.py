"""Reversible blocks: beside plain two streams with autograd, in decoding, and what a training keeps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from lexmill import models
from lexmill.base.strict import build
from lexmill.models.declaration import family

TINY = dict(family("linear_attention").tiny)


def network(n_layer: int = 3, **shape: Any) -> Any:
    torch.manual_seed(1)
    sizes = {**TINY, "n_layer": n_layer, "mixers": ("lsh", "gla"), "reversible": True, **shape}
    module = models.build({"family": "linear_attention", "shape": sizes, "vocab_size": 30})
    for parameter in module.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.2)
    return module


def plain_hidden(module: Any, tokens: Tensor, documents: Tensor | None) -> Tensor:
    """The slow twin: autograd keeps everything."""
    first = second = module.embedding(tokens)
    blocks = list(module.blocks)
    shared = blocks[0].mixer.shared(tokens, 0, documents)
    for block in blocks:
        first = first + block.attention(block.attention_norm(second), shared, None)
        second = second + block.feed_forward(block.feed_forward_norm(first))
    found: Tensor = module.norm((first + second) / 2)
    return found


TOKENS = torch.randint(0, 30, (2, 12), generator=torch.Generator().manual_seed(3))
DOCUMENTS = torch.tensor([[0] * 5 + [1] * 7, [0] * 12])


@pytest.mark.parametrize("documents", [None, DOCUMENTS], ids=["whole", "documents"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-4)])
def test_output_and_all_gradients_are_those_of_plain_streams(
    documents: Tensor | None, dtype: torch.dtype, tolerance: float
) -> None:
    module = network().to(dtype)
    weight = torch.randn(2, 12, 16, dtype=dtype, generator=torch.Generator().manual_seed(4))
    wanted = plain_hidden(module, TOKENS, documents)
    (wanted * weight).sum().backward()
    gradients = {name: value.grad.clone() for name, value in module.named_parameters() if value.grad is not None}
    assert set(gradients) == set(dict(module.named_parameters()))
    module.zero_grad()
    found = module.hidden(TOKENS, None, documents)
    torch.testing.assert_close(found, wanted, atol=tolerance, rtol=tolerance)
    (found * weight).sum().backward()
    for name, value in module.named_parameters():
        torch.testing.assert_close(value.grad, gradients[name], atol=tolerance * 10, rtol=tolerance * 10, msg=name)


def test_decoding_gives_the_logits_of_the_whole_text() -> None:
    module = network(mixers=("gla", "retnet")).double().eval()
    with torch.no_grad():
        whole, cache = module(TOKENS), module.new_cache(2)
        steps = [module(TOKENS[:, at : at + 1], cache) for at in range(12)]
    torch.testing.assert_close(torch.cat(steps, 1), whole)


def kept(module: Any) -> int:
    """The numbers that autograd keeps for a loss, weights left out."""
    weights = {value.data_ptr() for value in module.parameters()}
    found = 0

    def count(value: Tensor) -> Tensor:
        nonlocal found
        found += value.numel() if value.data_ptr() not in weights else 0
        return value

    with torch.autograd.graph.saved_tensors_hooks(count, lambda value: value):
        module.hidden(TOKENS)
    return found


def test_what_is_kept_does_not_grow_with_the_layers() -> None:
    assert kept(network(2)) == kept(network(6))
    plain = kept(network(6, reversible=False)) - kept(network(2, reversible=False))
    assert plain > 4 * TOKENS.numel() * 16 * 4


def test_dropout_is_refused() -> None:
    errors: list[str] = []
    build(family("linear_attention").shape, {**TINY, "reversible": True, "dropout": 0.1}, errors, "shape")
    assert "set dropout to 0" in errors[0]


def test_a_later_token_changes_nothing_before_it() -> None:
    module = network().eval()
    changed = TOKENS.clone()
    changed[:, 7:] = (changed[:, 7:] + 1) % 30
    with torch.no_grad():
        assert torch.equal(module(TOKENS)[:, :7], module(changed)[:, :7])
    loss, other = (module.loss(TOKENS[:, :7], TOKENS[:, 1:8]) for _ in range(2))
    assert torch.equal(loss, other)
