"""Spans: the logits of transformers' BertForQuestionAnswering; segments; families without them; wrong shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from lexmill.models import build
from lexmill.models.pretrained import read
from lexmill.models.start import start
from tests.support.tiny_bert import SIZES as SHAPE
from tests.support.tiny_bert import make_tiny_bert


def network(family: str = "bert", **shape: Any) -> Any:
    torch.manual_seed(1)
    config = {"family": family, "shape": shape or SHAPE, "vocab_size": 9, "spans": True}
    return build(config).eval()


def batch() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    tokens = torch.tensor([[2, 5, 3, 6, 7, 3], [2, 8, 3, 5, 3, 0]])
    return tokens, tokens > 0, torch.tensor([[0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 0]])


@torch.no_grad()
def test_the_logits_are_those_of_transformers(tmp_path: Path) -> None:
    make_tiny_bert(tmp_path / "encoder", ["a", "b", "c", "d"])
    theirs = transformers.AutoModelForQuestionAnswering.from_pretrained(tmp_path / "encoder").eval()
    theirs.save_pretrained(tmp_path / "whole")
    module = network()
    found = read(tmp_path / "whole")
    module.encoder.load_state_dict(found.state)
    assert set(found.span_head) == {"head.weight", "head.bias"}
    module.head.weight.copy_(found.span_head["head.weight"])
    module.head.bias.copy_(found.span_head["head.bias"])
    tokens, mask, segments = batch()
    expected = theirs(input_ids=tokens, attention_mask=mask, token_type_ids=segments)
    logits = module(tokens, mask, segments)
    for side, one in enumerate((expected.start_logits, expected.end_logits)):
        torch.testing.assert_close(logits[..., side][mask], one[mask], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_segments_change_the_hidden_states_and_the_first_is_the_default() -> None:
    encoder = network().encoder
    tokens, mask, segments = batch()
    plain = encoder.hidden(tokens, mask)
    torch.testing.assert_close(encoder.hidden(tokens, mask, torch.zeros_like(tokens)), plain)
    assert (encoder.hidden(tokens, mask, segments)[mask] - plain[mask]).abs().max() > 1e-2


@torch.no_grad()
def test_an_encoder_without_segments_reads_the_tokens_alone() -> None:
    shape = {"d_model": 16, "n_layer": 1, "n_head": 2, "d_ffn": 16, "max_positions": 24}
    for module in (network("efficient_encoder", **shape), network(**SHAPE, type_vocab_size=1)):
        tokens, mask, segments = batch()
        logits = module(tokens, mask, segments)
        assert logits.shape == (2, 6, 2)
        assert torch.equal(logits, module(tokens, mask, torch.zeros_like(segments)))
        assert module.max_positions == 24


def test_wrong_shapes_are_refused() -> None:
    tokens, mask, segments = batch()
    with pytest.raises(ValueError, match="each must be"):
        network()(tokens, mask, segments[:, :3])


def test_another_head_is_not_taken_for_one_of_spans(tmp_path: Path) -> None:
    make_tiny_bert(tmp_path / "encoder", ["a", "b", "c", "d"])
    assert read(tmp_path / "encoder").span_head == {}
    module = network()
    before = module.head.weight.clone()
    recipe = tmp_path / "gpt2.yaml"
    recipe.write_text("name: gpt2\nstd: 0.02\n")
    start(module, {"family": "bert", "shape": SHAPE, "vocab_size": 9}, recipe, tmp_path)
    assert module.head.weight.shape == before.shape
