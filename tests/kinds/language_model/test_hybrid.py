"""Next tokens and masked next tokens of one network, beside slow twins."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lexmill import models, tokenizers
from lexmill.base.errors import UserError, UserErrors
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.data.encoding import encode_corpus
from lexmill.data.masking import Plan, vocabulary
from lexmill.data.shards import TokenShards
from lexmill.decoding import masked_tokens
from lexmill.decoding.fill import fill
from lexmill.evaluation.subject import Subject
from lexmill.kinds.language_model import evaluate, masked
from lexmill.kinds.language_model.hybrid import HybridTask
from lexmill.kinds.language_model.predict import Predictor
from lexmill.models.common.cross_entropy import IGNORED
from lexmill.params import Evaluation
from lexmill.tokenizers.kinds import assemble, byte_model
from lexmill.tokenizers.saving import save
from lexmill.training.task import tensors
from tests.support.prepared import write_prepared

CPU, T = torch.device("cpu"), 12
SHAPE = {"n_layer": 2, "n_head": 2, "d_model": 16, "d_ffn": 24, "context": T}
TEXT = "To be, or not to be, that is the question: whether 'tis nobler in the mind to suffer "


@pytest.fixture
def tokenizer(tmp_path: Path) -> tokenizers.Tokenizer:
    (tmp_path / "bytes").mkdir()
    save(assemble("byte", byte_model(), lowercase=False), tmp_path / "bytes")
    return tokenizers.load(tmp_path / "bytes")


def network(**shape: Any) -> Any:
    torch.manual_seed(1)
    module = models.build({"family": "decoder", "shape": SHAPE | shape, "vocab_size": 261})
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return module.eval()


def made(tokenizer: tokenizers.Tokenizer, folder: Path, module: Any, windows: float = 0.5) -> HybridTask:
    if not (folder / "shards").exists():
        (folder / "shards").mkdir()
        records = {split: [{"id": "a", "group": "a", "text": TEXT}] for split in ("train", "valid", "test")}
        encode_corpus(folder / "shards", "text", records, tokenizer, "0" * 64)
    shards = [TokenShards(folder / "shards", split) for split in ("train", "valid")]
    plan = Plan(vocabulary(tokenizer), "token", 0.3)
    options = {"context": T, "batch_tokens": 4 * T, "data_seed": 3, "plan": plan, "masked_windows": windows}
    return HybridTask(module, *shards, **options)


@torch.no_grad()
@pytest.mark.parametrize("positions", ["rotary", "learned", "sinusoidal", "none"])
def test_the_loss_is_the_mean_of_both_objectives(
    tokenizer: tokenizers.Tokenizer, tmp_path: Path, positions: str
) -> None:
    module = network(positions=positions)
    task = made(tokenizer, tmp_path, module)
    batch, plain = task.batch(5, 0, 1), task.batches.rows(5, 0, 1)
    assert batch["masked"].tolist() == [True, True, False, False]
    wanted = 0.0
    for row in range(4):
        inputs, targets = torch.tensor(batch["inputs"][row]), batch["targets"][row]
        if not batch["masked"][row]:
            assert np.array_equal(inputs, plain[0][row])
            nats = [-module(inputs[None])[0, i].log_softmax(0)[targets[i]] for i in range(T)]
            wanted += float(sum(nats))
            continue
        predicted = np.flatnonzero(targets != IGNORED)
        assert len(predicted) == round(0.3 * (T - 1))
        assert np.array_equal(targets[predicted], plain[1][row][predicted]), "the token after a position"
        assert any(batch["inputs"][row][predicted + 1] == tokenizer.mask_id), "is masked there"
        others = np.setdiff1d(np.arange(T), predicted + 1)
        assert np.array_equal(batch["inputs"][row][others], plain[0][row][others])
        logits = both_ways(module, inputs)
        nats = [-float(logits[i].log_softmax(0)[targets[i]]) for i in predicted]
        wanted += T * sum(nats) / len(nats)
    loss, count = task.loss_sum(module, tensors(batch, CPU))
    assert (float(loss), count) == (pytest.approx(wanted, rel=1e-4), 4 * T)
    each = [task.loss_sum(module, tensors({k: a[i : i + 1] for k, a in batch.items()}, CPU)) for i in range(4)]
    assert float(sum(one for one, _ in each)) == pytest.approx(wanted, rel=1e-4)


def both_ways(module: Any, inputs: torch.Tensor) -> torch.Tensor:
    """Logits (T, V) where the triangle of each attention is replaced by a full mask."""
    from unittest.mock import patch

    from torch.nn.functional import scaled_dot_product_attention

    def whole(query: Any, key: Any, value: Any, **_: Any) -> Any:
        return scaled_dot_product_attention(query, key, value)

    with patch("lexmill.models.common.attention.scaled_dot_product_attention", whole):
        out: torch.Tensor = module(inputs[None])[0]
    return out


@torch.no_grad()
def test_masked_windows_look_ahead_and_the_others_do_not() -> None:
    module = network()
    inputs = torch.randint(5, 261, (1, T))
    targets = torch.full((1, T), IGNORED)
    targets[0, 2] = 7
    changed = inputs.clone()
    changed[0, -1] = (changed[0, -1] + 1) % 261
    assert not torch.equal(module.masked_loss(inputs, targets), module.masked_loss(changed, targets))
    assert torch.equal(module.loss(inputs[:, :-1], targets[:, :-1]), module.loss(changed[:, :-1], targets[:, :-1]))


@torch.no_grad()
def test_sentences_are_scored_by_masked_tokens(tokenizer: tokenizers.Tokenizer) -> None:
    """Each token masked alone, predicted at the position before it; a long text in pieces of like length."""
    module, mask_id = network(), tokenizer.mask_id
    model = Predictor("gpt_bert", {"masked": True, "evaluate": {"prompts": []}}, module, tokenizer)
    texts = ["To be", "or not to be, that"]
    found = masked_tokens.log_probabilities(masked.reader(model), texts)
    for text, value in zip(texts, found, strict=True):
        ids, wanted = tokenizer.encode(text), 0.0
        for part in np.array_split(np.array(ids), -(-len(ids) // (T - 2))):
            piece = torch.tensor([tokenizer.eos_id, *part, tokenizer.eos_id])
            for i in range(1, len(piece) - 1):
                read = piece.clone()
                read[i] = mask_id
                wanted += float(both_ways(module, read)[i - 1].log_softmax(0)[piece[i]])
        assert value == pytest.approx(wanted, rel=1e-4)


@torch.no_grad()
def test_its_evaluation_has_figures_of_masked_tokens(
    tokenizer: tokenizers.Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, mask_id = network(), tokenizer.mask_id
    records = [{"text": "To be"}, {"text": "or not to"}]
    write_prepared(tmp_path / "texts", "text", {split: records for split in ("train", "valid", "test")})
    subject = Subject(
        "gpt_bert",
        {"masked": True},
        None,
        module,
        tokenizer,
        PreparedCorpus(tmp_path / "texts"),
        Evaluation(bootstrap_samples=10, batch_tokens=64),
        0,
    )
    nats, right, tokens = 0.0, 0, 14
    for record in records:
        piece = torch.tensor([tokenizer.eos_id, *tokenizer.encode(record["text"]), tokenizer.eos_id])
        for i in range(1, len(piece) - 1):  # each masked alone
            read = piece.clone()
            read[i] = mask_id
            logits = both_ways(module, read)[i - 1]
            nats, right = nats - float(logits.log_softmax(0)[piece[i]]), right + int(logits.argmax() == piece[i])
    found = evaluate.masked(subject)
    assert found["pseudo_perplexity"] == pytest.approx(math.exp(nats / tokens), rel=1e-4)
    assert found["pseudo_tokens"] == found["masked_tokens"] == tokens
    monkeypatch.setattr(masked_tokens, "PASSES", 14)  # so that these mask one at a time too
    found = evaluate.masked(subject)
    assert found["masked_nats"] == pytest.approx(nats / tokens, rel=1e-4)
    assert found["masked_accuracy"] == pytest.approx(right / tokens)
    assert found["masked_bits_per_byte"] == pytest.approx(nats / math.log(2) / tokens, rel=1e-4)  # a token is a byte
    assert found["masked_nats_low"] <= found["masked_nats"] <= found["masked_nats_high"]
    assert evaluate.masked(dataclasses.replace(subject, config={})) == {}


@torch.no_grad()
def test_masks_are_filled_in_by_what_stands_on_both_sides(tokenizer: tokenizers.Tokenizer) -> None:
    module = network()
    model = Predictor("gpt_bert", {"masked": True, "evaluate": {"prompts": []}}, module, tokenizer)
    (answer,) = fill(masked.reader(model), ["To b[MASK], or"], top=3)
    eos = tokenizer.eos_id
    read = torch.tensor([eos, *tokenizer.encode("To b"), tokenizer.mask_id, *tokenizer.encode(", or"), eos])
    logits = both_ways(module, read)[len(tokenizer.encode("To b"))]
    logits[:5] = -torch.inf
    shares = logits.double().softmax(0)
    assert [one["probability"] for one in answer] == pytest.approx(shares.topk(3).values.tolist(), rel=1e-4)
    assert answer[0]["text"] == "To b" + tokenizer.decode([int(shares.argmax())]) + ", or"
    other = Predictor("gpt", {"evaluate": {"prompts": []}}, module, tokenizer)
    with pytest.raises(UserError, match=r"'gpt' reads from the left only; recipe\.method: hybrid trains one"):
        masked.reader(other)


def test_batches_are_functions_of_seed_and_step_and_ranks_share_them(
    tokenizer: tokenizers.Tokenizer, tmp_path: Path
) -> None:
    task = made(tokenizer, tmp_path, network())
    whole, again = task.batch(7, 0, 1), made(tokenizer, tmp_path, network()).batch(7, 0, 1)
    assert all(np.array_equal(whole[name], again[name]) for name in whole)
    shares = [task.batch(7, rank, 2) for rank in range(2)]
    for name in whole:
        assert np.array_equal(np.stack([shares[row % 2][name][row // 2] for row in range(4)]), whole[name])
    for share, count in ((0.01, 1), (0.75, 3), (0.99, 3)):
        assert made(tokenizer, tmp_path, network(), share).batch(0, 0, 1)["masked"].sum() == count


@torch.no_grad()
def test_validation_has_each_objective_apart(tokenizer: tokenizers.Tokenizer, tmp_path: Path) -> None:
    module = network()
    task = made(tokenizer, tmp_path, module)
    first, again = (list(task.validation_batches(0, 1)) for _ in range(2))
    assert all(np.array_equal(a[k], b[k]) for a, b in zip(first, again, strict=True) for k in a)
    sums = sum(torch.as_tensor(task.validation_sums(module, tensors(batch, CPU))) for batch in first)
    found = task.validation_metrics(torch.as_tensor(sums).tolist())
    nats, count = 0.0, 0
    for batch in first:
        for inputs, targets, whole in zip(
            batch["masked_inputs"], batch["masked_targets"], batch["targets"], strict=True
        ):
            predicted = np.flatnonzero(targets != IGNORED)
            assert not (len(predicted) and (whole == IGNORED).any()), "no padding is seen"
            logits = both_ways(module, torch.tensor(inputs))
            nats -= sum(float(logits[i].log_softmax(0)[targets[i]]) for i in predicted)
            count += len(predicted)
    assert count
    assert found["valid_masked_loss"] == pytest.approx(nats / count, rel=1e-4)
    plain = sum(float(module.loss(*(torch.tensor(batch[k]) for k in ("inputs", "targets")))) for batch in first)
    targets = sum(int((batch["targets"] != IGNORED).sum()) for batch in first)
    assert found["valid_loss"] == pytest.approx(plain / targets, rel=1e-4)


def test_what_looks_back_only_is_refused() -> None:
    for shape in ({"positions": "alibi"}, {"positions": "relative"}, {"window": 4}):
        with pytest.raises(UserError, match="look back only"):
            network(**shape).masked_loss(torch.ones(1, T, dtype=torch.long), torch.ones(1, T, dtype=torch.long))


def test_the_params_are_checked() -> None:
    from lexmill.params import parse
    from tests.registry.plain import plain_params

    chosen = plain_params()
    chosen["models"]["gpt"]["recipe"] |= {"method": "hybrid"}
    chosen["models"]["gpt"]["data"]["mask_documents"] = True
    with pytest.raises(UserErrors, match="a token of 'gpt' cannot see those after it; one of decoder can") as found:
        parse(chosen)
    assert "mask_documents: a masked window is seen whole" in str(found.value)
    chosen["models"]["gpt"]["recipe"]["batch"] = chosen["models"]["gpt"]["shape"]["context"]
    with pytest.raises(UserErrors, match="is one window; the method hybrid needs two"):
        parse(chosen)
