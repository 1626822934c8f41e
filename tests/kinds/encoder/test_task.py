"""The losses of each objective beside slow twins, however a batch is cut; scores of texts masked one by one."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

from lexmill import models, tokenizers
from lexmill.base.errors import UserError
from lexmill.data.masking import Plan, vocabulary
from lexmill.data.texts import parts
from lexmill.decoding.fill import fill
from lexmill.decoding.masked_tokens import Reader, scores
from lexmill.evaluation.bootstrap import Resampling
from lexmill.evaluation.masked_tokens import summarise
from lexmill.evaluation.significance import compare
from lexmill.kinds.encoder import masked
from lexmill.kinds.encoder.baselines import Counts
from lexmill.kinds.encoder.batches import MaskedBatches, Pieces, Reading
from lexmill.kinds.encoder.metrics import TEST
from lexmill.kinds.encoder.predict import Predictor
from lexmill.kinds.encoder.task import MaskedTask, ReplacedTask
from lexmill.models.common.cross_entropy import IGNORED
from lexmill.models.common.pretraining import draw
from lexmill.tokenizers.kinds import assemble, byte_model
from lexmill.tokenizers.saving import save
from lexmill.training.task import tensors

CPU = torch.device("cpu")
SHAPE = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "max_position_embeddings": 32,
}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> tokenizers.Tokenizer:
    made = tmp_path_factory.mktemp("tokenizer")
    save(assemble("byte", byte_model(), lowercase=False), made)
    return tokenizers.load(made)


def network(family: str = "bert", **heads: Any) -> Any:
    pretraining = {"objective": "masked", "pairs": "none", "generator": {}} | heads
    shape = SHAPE if family == "bert" else dict(models.family(family).tiny) | {"max_positions": 32}
    torch.manual_seed(1)
    module = models.build({"family": family, "shape": shape, "vocab_size": 261, "pretraining": pretraining})
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return module.eval()


class Shards:
    """Documents of a byte tokenizer."""

    split, folder = "train", Path("shards")

    def __init__(self, tokenizer: tokenizers.Tokenizer, *texts: str) -> None:
        documents = [[*tokenizer.encode(text), tokenizer.eos_id] for text in texts]
        self.tokens = np.array([token for document in documents for token in document])
        self.offsets = np.cumsum([0, *map(len, documents)])

    def __len__(self) -> int:
        return len(self.offsets) - 1


TEXTS = ("To be, or not to be", "that is the question:", "Whether", "'tis nobler in the mind to suffer")


def batches(tokenizer: tokenizers.Tokenizer, pairs: Any = "none", keep: bool = True) -> MaskedBatches:
    pieces = Pieces(cast(Any, Shards(tokenizer, *TEXTS)), 20, 2)
    plan = Plan(vocabulary(tokenizer), "token", 0.3, keep)
    reading = Reading(tokenizer.bos_id, tokenizer.eos_id, tokenizer.pad_id, plan, pairs)
    return MaskedBatches(pieces, reading, 8, seed=3)


def task_of(kind: Any, module: Any, made: MaskedBatches) -> Any:
    weight = [50.0] if kind is ReplacedTask else []
    return kind(module, {"train": made, "valid": made}, *weight)


def sums(task: Any, module: Any, cut: list[Any]) -> tuple[float, int]:
    found = [task.loss_sum(module, tensors(part, CPU)) for part in cut]
    return float(sum(loss for loss, _ in found)), sum(int(count) for _, count in found)


@torch.no_grad()
@pytest.mark.parametrize("family", ["bert", "efficient_encoder"])
@pytest.mark.parametrize("pairs", ["none", "next_sentence", "sentence_order"])
def test_the_loss_of_masked_tokens_and_pairs(tokenizer: tokenizers.Tokenizer, family: str, pairs: Any) -> None:
    module, made = network(family, pairs=pairs), batches(tokenizer, pairs)
    batch, task = made.rows(0, 0, 1), task_of(MaskedTask, module, made)
    nats = pair_nats = weighted = 0.0
    pairs_right = right = 0
    for row in range(len(batch["tokens"])):
        length = int(batch["mask"][row].sum())
        tokens = torch.tensor(batch["tokens"][row : row + 1, :length])
        segments = torch.tensor(batch["segments"][row : row + 1, :length]) if pairs != "none" else None
        arguments = (tokens, torch.ones_like(tokens, dtype=torch.bool), *([] if segments is None else [segments]))
        hidden = module.encoder.hidden(*arguments)[0]
        chosen = [i for i in range(length) if batch["labels"][row, i] != IGNORED]
        for i in chosen:
            transform = module.head.transform
            x = torch.nn.functional.gelu(transform.dense.weight @ hidden[i] + transform.dense.bias)
            x = (x - x.mean()) / (x.var(unbiased=False) + 1e-12).sqrt() * transform.LayerNorm.weight
            logits = module.embedding @ (x + transform.LayerNorm.bias) + module.head.bias
            label = int(batch["labels"][row, i])
            nats -= float(logits.log_softmax(0)[label])
            right += int(logits.argmax()) == label
        if pairs != "none":
            head = module.pair_head
            both = head.order.weight @ torch.tanh(head.pooler.weight @ hidden[0] + head.pooler.bias) + head.order.bias
            one = -float(both.log_softmax(0)[batch["follows"][row]])
            pairs_right += int(both.argmax()) == batch["follows"][row]
            pair_nats, weighted = pair_nats + one, weighted + one * len(chosen)
    count = int((batch["labels"] != IGNORED).sum())
    assert sums(task, module, [batch]) == (pytest.approx(nats + weighted, rel=1e-4), count)
    each = [{name: array[i : i + 1] for name, array in batch.items()} for i in range(len(batch["tokens"]))]
    assert sums(task, module, each) == (pytest.approx(nats + weighted, rel=1e-4), count)
    assert sums(task, module, parts(batch, 0)) == (pytest.approx(nats + weighted, rel=1e-4), count)
    found = task.validation_metrics(task.validation_sums(module, tensors(batch, CPU)).tolist())
    assert found["valid_loss"] == pytest.approx((nats + weighted) / count, rel=1e-4)
    assert found["valid_masked_loss"] == pytest.approx(nats / count, rel=1e-4)
    assert found["valid_masked_accuracy"] == pytest.approx(right / count)
    if pairs != "none":
        assert found["valid_pair_loss"] == pytest.approx(pair_nats / len(batch["tokens"]), rel=1e-4)
        assert found["valid_pair_accuracy"] == pytest.approx(pairs_right / len(batch["tokens"]))


@torch.no_grad()
def test_the_loss_of_replaced_tokens(tokenizer: tokenizers.Tokenizer) -> None:
    module, made = network(objective="replaced", generator={"num_hidden_layers": 1}), batches(tokenizer, keep=False)
    batch, task = made.rows(0, 0, 1), task_of(ReplacedTask, module, made)
    nats = weighted = finding = 0.0
    right = replaced = 0
    for row in range(len(batch["tokens"])):
        length = int(batch["mask"][row].sum())
        tokens = torch.tensor(batch["tokens"][row : row + 1, :length])
        every = torch.ones_like(tokens, dtype=torch.bool)
        labels = batch["labels"][row, :length]
        original = np.where(labels != IGNORED, labels, tokens[0].numpy())
        read = original.copy()
        logits = module.generator(tokens, every, every)[0]
        for i in np.flatnonzero(labels != IGNORED):
            shares = logits[i].double().softmax(0).tolist()
            nats -= math.log(shares[labels[i]])
            reached, token = shares[0], 0
            while reached <= batch["noise"][row, i]:
                token += 1
                reached += shares[token]
            read[i] = token
        found = module.find(torch.tensor(read[None]), every)[0].sigmoid().tolist()
        one = [-math.log(p if a != b else 1 - p) for p, a, b in zip(found, read, original, strict=True)]
        finding += sum(one)
        replaced += int((read != original).sum())
        right += sum((p > 0.5) == (a != b) for p, a, b in zip(found, read, original, strict=True))
        weighted += sum(one) / length * int((labels != IGNORED).sum())
    count, real = int((batch["labels"] != IGNORED).sum()), int(batch["mask"].sum())
    wanted = nats + 50 * weighted
    assert sums(task, module, [batch]) == (pytest.approx(wanted, rel=1e-4), count)
    assert sums(task, module, parts(batch, 0)) == (pytest.approx(wanted, rel=1e-4), count)
    assert replaced
    assert task.validation_metrics(task.validation_sums(module, tensors(batch, CPU)).tolist()) == {
        "valid_loss": pytest.approx(wanted / count, rel=1e-4),
        "valid_masked_loss": pytest.approx(nats / count, rel=1e-4),
        "valid_masked_accuracy": pytest.approx(0.0, abs=1.0),
        "valid_replaced_loss": pytest.approx(finding / real, rel=1e-4),
        "valid_replaced_accuracy": pytest.approx(right / real),
        "valid_replaced_share": pytest.approx(replaced / real),
    }


def test_no_gradient_goes_from_the_detector_to_the_generator(tokenizer: tokenizers.Tokenizer) -> None:
    module, made = network(objective="replaced", generator={"num_hidden_layers": 1}), batches(tokenizer, keep=False)
    batch = tensors(made.rows(0, 0, 1), CPU)
    _, found, _ = module(batch["tokens"], batch["mask"], batch["labels"], batch["noise"])
    found.sum().backward()
    assert all(parameter.grad is None for parameter in module.generator.head.parameters())
    assert module.encoder.embeddings.word_embeddings.weight.grad is not None


def test_tokens_are_drawn_by_their_shares() -> None:
    logits = torch.tensor([0.5, 0.2, 0.3]).log().repeat(1000, 1)
    noise = (torch.arange(1000) + 0.5) / 1000
    assert torch.bincount(draw(logits, noise)).tolist() == [500, 200, 300]
    assert draw(torch.tensor([[0.0, -50.0]]), torch.tensor([1.0])).tolist() == [1]


def reader(module: Any, tokenizer: tokenizers.Tokenizer) -> Reader:
    return masked.reader(Predictor("bert", {"kind": "encoder", "max_tokens": 32}, module, tokenizer))


@torch.no_grad()
@pytest.mark.parametrize("alone", [False, True])
def test_each_token_is_scored_once_whatever_the_batch(tokenizer: tokenizers.Tokenizer, alone: bool) -> None:
    module = network()
    texts = [tokenizer.encode(text) for text in (*TEXTS, "", "x")]
    found = scores(reader(module, tokenizer), texts, batch_tokens=10_000, alone=alone)
    for text, one in zip(texts, found, strict=True):
        (again,) = scores(reader(module, tokenizer), [text], batch_tokens=1, alone=alone)
        np.testing.assert_allclose(again.nats, one.nats, rtol=1e-4)
        assert (one.nats > 0).all()
    if alone:
        for text, one in zip(texts[:3], found, strict=False):
            for i, token in enumerate(text):
                ids = torch.tensor([[tokenizer.bos_id, *text, tokenizer.eos_id]])
                ids[0, i + 1] = cast(int, tokenizer.mask_id)
                every = torch.ones_like(ids, dtype=torch.bool)
                slow = module(ids, every, every)[0][i + 1].log_softmax(0)
                assert one.nats[i] == pytest.approx(-float(slow[token]), rel=1e-4)
                assert one.right[i] == (int(slow.argmax()) == token)


@torch.no_grad()
def test_fillings_are_the_likeliest_tokens(tokenizer: tokenizers.Tokenizer) -> None:
    module = network()
    (answer,) = fill(reader(module, tokenizer), ["To b[MASK], or"], top=3)
    ids = torch.tensor([[tokenizer.bos_id, *tokenizer.encode("To b"), 4, *tokenizer.encode(", or"), tokenizer.eos_id]])
    logits = module(ids, torch.ones_like(ids, dtype=torch.bool), ids == 4)[0][0]
    logits[:5] = -torch.inf
    shares = logits.double().softmax(0)
    assert [one["probability"] for one in answer] == pytest.approx(shares.topk(3).values.tolist(), rel=1e-4)
    assert answer[0]["text"] == "To b" + tokenizer.decode([int(shares.argmax())]) + ", or"
    long = "a" * 100 + "[MASK]" + "b" * 100
    near = fill(reader(module, tokenizer), [long], top=1)[0][0]["probability"]
    cut = fill(reader(module, tokenizer), ["a" * 15 + "[MASK]" + "b" * 14], top=1)[0][0]["probability"]
    assert near == pytest.approx(cut, rel=1e-4)
    with pytest.raises(UserError, match="the masks of a text are 41 tokens apart, but the encoder reads 30"):
        fill(reader(module, tokenizer), ["[MASK]" + "a" * 40 + "[MASK]"], top=1)
    with pytest.raises(UserError, match="top is 0"):
        Predictor("bert", {"kind": "encoder", "max_tokens": 32}, module, tokenizer).predict(["a"], {"top": 0})


def test_special_tokens_typed_in_a_text_stay_text(tokenizer: tokenizers.Tokenizer) -> None:
    """Only [MASK] is a mask for `fill`; `<mask>` and `</s>` are characters to it, and to training."""
    (answer,) = fill(reader(network(), tokenizer), ["a<mask></s> [MASK]"], top=1)
    assert [one["mask"] for one in answer] == [1]
    words = vocabulary(tokenizer)
    assert not words.special[tokenizer.encode("a<mask></s>")].any()


def test_the_guess_between_neighbours_by_hand(tokenizer: tokenizers.Tokenizer) -> None:
    """Train is `aba`, `aca`, `aba`: between a and a are b, c and b."""
    words, one = vocabulary(tokenizer), {letter: tokenizer.encode(letter)[0] for letter in "abcd"}
    ids = [np.array(tokenizer.encode(text)) for text in ("aba", "aca", "aba")]
    counts = Counts(ids, words, tokenizer.bos_id, tokenizer.eos_id)
    ordinary, strength = 256, 3.0
    share = {"a": 7 / (9 + ordinary), "b": 3 / (9 + ordinary), "c": 2 / (9 + ordinary), "d": 1 / (9 + ordinary)}
    # a's right neighbours: b, c, b; its left neighbours are the same.
    side = {x: (n + strength * share[x]) / (3 + strength) for x, n in (("a", 0), ("b", 2), ("c", 1), ("d", 0))}
    between = {x: (n + strength * side[x]) / (3 + strength) for x, n in (("a", 0), ("b", 2), ("c", 1), ("d", 0))}
    for letter in "abcd":
        found = counts.score(np.array(tokenizer.encode(f"a{letter}a")), strength)
        assert found.nats[1] == pytest.approx(-math.log(between[letter]))
        assert found.right[1] == (letter == "b")
        alone = counts.score(np.array(tokenizer.encode(letter)), None)
        assert alone.nats[0] == pytest.approx(-math.log(share[letter]))
        assert alone.right[0] == (letter == "a")
    total = counts.probabilities(one["a"], one["a"], words.ordinary, strength).sum()
    assert total == pytest.approx(1.0)
    unseen = counts.probabilities(one["d"], one["d"], words.ordinary, strength)
    np.testing.assert_allclose(unseen, counts.share[words.ordinary])


def test_metrics_and_the_paired_test_by_hand() -> None:
    rows = [
        {
            "id": str(i),
            "group": str(i),
            "nats": 2.0,
            "targets": 4,
            "right": 3,
            "bytes": 8,
            "unknown": 0,
            "text_sha256": "",
        }
        for i in range(40)
    ]
    how = Resampling(samples=50, confidence=0.9, seed=1)
    found = summarise(rows, "document", how)
    assert (found["masked_nats"], found["masked_accuracy"], found["masked_tokens"]) == (0.5, 0.75, 160)
    assert found["masked_bits_per_byte"] == pytest.approx(0.25 / math.log(2))
    worse = [{**row, "nats": 3.0} for row in rows]
    compared = compare(TEST, rows, worse, how)
    assert (compared.metric, compared.difference, compared.better) == ("masked_nats", -0.25, True)
    other = [{**row, "targets": 5} for row in worse]
    assert compare(TEST, rows, other, how).metric == "masked_bits_per_byte"
    with pytest.raises(UserError, match="different tokenizers and one of them makes unknown tokens"):
        compare(TEST, rows, [{**row, "unknown": 1} for row in other], how)
    assert "masked_bits_per_byte" not in summarise([{**row, "unknown": 1} for row in rows], "document", how)
    with pytest.raises(UserError, match="no token to mask"):
        summarise([], "document", how)
