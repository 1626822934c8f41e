"""Attention weights beside `transformers`, by hand, and which networks have any."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModel

from lexmill import models
from lexmill.kinds.classifier.attention import attention
from lexmill.models.attention_weights import attention_weights, rollout, softmax_weights
from lexmill.models.common.heads import PooledClassifier
from lexmill.tokenizers import load
from tests.models.test_bert import batch, build, checkpoint

__all__ = ["checkpoint"]


def test_those_of_bert_are_those_of_transformers(checkpoint: Path) -> None:
    module, _ = build(checkpoint)
    oracle = AutoModel.from_pretrained(checkpoint, attn_implementation="eager").eval()
    tokens, mask = batch()
    found = attention_weights(module, tokens, mask)
    with torch.no_grad():
        wanted = oracle(input_ids=tokens, attention_mask=mask.long(), output_attentions=True).attentions
    assert len(found) == len(wanted) > 1
    for ours, theirs in zip(found, wanted, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6)
        assert torch.allclose(ours.sum(-1), torch.ones(ours.shape[:-1]), atol=1e-6)
    assert float(found[0][1, :, :, 3:].abs().max()) == 0  # padding gets none
    with torch.no_grad():
        before = module(tokens, mask)
    attention_weights(module, tokens, mask)
    with torch.no_grad():
        assert torch.equal(module(tokens, mask), before)  # and nothing is left behind


@pytest.mark.parametrize(("family", "layers"), [("modern_encoder", 2), ("llama", 1), ("text_cnn", 0), ("lstm", 0)])
def test_of_other_networks(family: str, layers: int) -> None:
    torch.manual_seed(0)
    network = models.build({"family": family, "shape": models.family(family).tiny, "vocab_size": 20})
    module = PooledClassifier(network, 2, 0.0).eval()
    tokens = torch.arange(5, 13).view(2, 4)
    found = attention_weights(module, tokens, torch.ones_like(tokens, dtype=torch.bool))
    assert len(found) >= layers
    assert bool(found) == bool(layers)
    for weights in found:
        assert torch.allclose(weights.sum(-1), torch.ones(weights.shape[:-1]), atol=1e-6)
        if family == "llama":
            assert torch.equal(weights, weights.tril())


@pytest.mark.parametrize("kind", ["softmax", "linformer", "performer"])
def test_only_attention_between_tokens_is_pictured(kind: str, checkpoint: Path) -> None:
    module, _ = build(checkpoint)
    tokenizer = load(checkpoint.parent / "tokenizer")
    shape = {
        "n_layer": 1,
        "n_head": 1,
        "d_model": 8,
        "d_ffn": 8,
        "max_positions": 12,
        "attention": kind,
        "n_feature": 4,
    }
    network = models.build({"family": "efficient_encoder", "shape": shape, "vocab_size": tokenizer.vocab_size})
    texts = ["a good film a good film a bad film", "good film", ""]
    how = {"max_tokens": 8, "stride": 3}
    found = attention(PooledClassifier(network, 2, 0.0).eval(), tokenizer, texts, how)
    assert len(found) == (2 if kind == "softmax" else 0)  # of the long text no window is shown
    assert [weights[0].shape for *_, weights in found] == [(4, 4), (2, 2)][: len(found)]
    bert = attention(module, tokenizer, texts, how)
    assert [tokens for tokens, *_ in bert] == [["[CLS]", "good", "film", "[SEP]"], ["[CLS]", "[SEP]"]]
    assert all(attending == attended for attending, attended, _ in bert)
    assert bert[0][2][0].sum(axis=1) == pytest.approx(1, abs=1e-5)
    assert bert[0][2][1].sum(axis=1) == pytest.approx(1, abs=1e-5)


def test_the_softmax_by_hand() -> None:
    torch.manual_seed(0)
    query, key = torch.randn(1, 2, 3, 4), torch.randn(1, 2, 3, 4)
    mask = torch.tensor([[True, True, False], [True, True, False], [False, False, False]])
    found = softmax_weights(query, key, mask, scale=0.3)
    for head in range(2):
        for i in range(3):
            seen = [j for j in range(3) if mask[i, j]]
            powers = {j: float(torch.exp(0.3 * query[0, head, i] @ key[0, head, j])) for j in seen}
            wanted = [powers[j] / sum(powers.values()) if j in powers else 0.0 for j in range(3)]
            assert found[0, head, i].tolist() == pytest.approx(wanted, abs=1e-6)


def test_rollout_by_hand() -> None:
    first = torch.tensor([[[[1.0, 0.0], [0.5, 0.5]]]])
    last = torch.tensor([[[[0.0, 1.0], [1.0, 0.0]]]])
    # Half the residual each: [[1, 0], [.25, .75]], then [[.5, .5], [.5, .5]].
    assert rollout([first, last])[0].tolist() == [[0.625, 0.375], [0.625, 0.375]]
    assert torch.allclose(rollout([first, last]).sum(-1), torch.ones(1, 2))
