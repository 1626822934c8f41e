"""Causal networks read in both directions: what a token sees, alone and under the heads."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from lexmill import models
from lexmill.base.errors import UserError
from lexmill.models.common.both_directions import BothDirections

SHAPE = {"n_layer": 2, "n_head": 4, "n_kv_head": 2, "d_model": 16, "d_ffn": 24, "context": 12}
TAGS = {
    "direction": "both",
    "tags": ["O", "B-x"],
    "scheme": "iob2",
    "pieces": "first",
    "head": "softmax",
    "dropout": 0.0,
}
LABELS = {"labels": ["a", "b"], "dropout": 0.0, "pooling": "mean"}
V = 23


def made(shape: dict[str, Any] | None = None, **head: Any) -> Any:
    torch.manual_seed(1)
    module = models.build({"family": "decoder", "shape": SHAPE | (shape or {}), "vocab_size": V, **head})
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return module.eval()


@torch.no_grad()
@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"positions": "learned", "norm_kind": "layer", "bias": True, "activation": "gelu"},
        {"positions": "sinusoidal", "norm": "post", "n_kv_head": 1},
        {"positions": "none", "qk_norm": True, "ngram_rows": 29},
    ],
)
def test_a_later_token_changes_an_earlier_state_and_padding_does_not(shape: dict[str, Any]) -> None:
    module = made(shape)
    encoder = BothDirections(module)
    tokens, mask = torch.randint(V, (2, 9)), torch.ones(2, 9, dtype=torch.bool)
    whole = encoder.hidden(tokens, mask)
    changed = tokens.clone()
    changed[:, -1] = (changed[:, -1] + 1) % V
    assert not torch.isclose(encoder.hidden(changed, mask)[:, 0], whole[:, 0]).all(dim=1).any()
    assert torch.equal(module.hidden(changed)[:, :-1], module.hidden(tokens)[:, :-1])  # causal as ever

    mask[1, 5:] = False
    padded = encoder.hidden(tokens, mask)
    torch.testing.assert_close(padded[0], whole[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(padded[1:, :5], encoder.hidden(tokens[1:, :5], mask[1:, :5]), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(module.both_directions(tokens), whole, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_the_heads_see_what_comes_later_where_they_are_to() -> None:
    tokens, mask = torch.randint(V, (1, 7)), torch.ones(1, 7, dtype=torch.bool)
    changed = tokens.clone()
    changed[0, -1] = (changed[0, -1] + 1) % V
    words = torch.arange(7)[None]
    tagger = made(**TAGS)
    first, second = (tagger(one, mask, words).emissions[0, 0] for one in (tokens, changed))
    assert not torch.equal(first, second)
    answerer = made(direction="both", spans=True)
    first, second = (answerer(one, mask, torch.zeros_like(one))[0, 0] for one in (tokens, changed))
    assert not torch.equal(first, second)
    for direction, sees in (("both", True), (None, False)):
        classifier = made(**LABELS, **({"direction": direction} if direction else {}))
        states = [classifier._states(one, mask)[0, 0] for one in (tokens, changed)]
        assert torch.equal(*states) != sees
        assert classifier.width == 16
        assert classifier.max_positions == 12
    with pytest.raises(ValueError, match="13 tokens, but the encoder has 12 positions"):
        tagger(*(torch.zeros(1, 13, dtype=torch.long) for _ in range(3)))


@pytest.mark.parametrize("shape", [{"positions": "alibi"}, {"positions": "relative"}, {"window": 3}])
def test_what_looks_back_only_is_refused(shape: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="look back only; leave them out to look ahead"):
        made(shape, **TAGS)
