"""The smoothed loss beside torch's, the task's sums, and proofs that a translator learns."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sacrebleu.metrics import BLEU, CHRF
from torch import Tensor

from lexmill.compute.execution import Execution
from lexmill.data.encoding import encode_corpus
from lexmill.data.shards import TokenShards
from lexmill.decoding.settings import BeamSearch
from lexmill.kinds.translator import TranslationRecipe
from lexmill.kinds.translator.batches import ParallelBatches
from lexmill.kinds.translator.losses import consistent_sum, smoothed_sum, with_own
from lexmill.kinds.translator.predict import translate_lines
from lexmill.kinds.translator.task import TranslationTask
from lexmill.models import build
from lexmill.models.common.dropout import Dropout
from lexmill.models.common.init import Xavier, initialize
from lexmill.params.length import Length
from lexmill.params.optimizers import AdamW, LinearSchedule
from lexmill.tokenizers import Tokenizer, kinds, load, saving
from lexmill.training.engine import fit
from lexmill.training.settings import TrainingSettings
from lexmill.training.task import micro_batches, tensors
from tests.decoding.forced import score

DIGITS = "0123456789"
CPU = torch.device("cpu")


def random_digits(rng: random.Random, longest: int = 8) -> str:
    return "".join(rng.choice(DIGITS) for _ in range(rng.randint(1, longest)))


def digits_tokenizer(folder: Path) -> Tokenizer:
    folder.mkdir()
    saving.save(kinds.assemble("character", kinds.character_model(list(DIGITS)), lowercase=False), folder)
    return load(folder)


def shards(folder: Path, tokenizer: Tokenizer, splits: dict[str, list[tuple[str, str]]]) -> Path:
    folder.mkdir()
    records = {name: [{"source": s, "target": t} for s, t in rows] for name, rows in splits.items()}
    encode_corpus(folder, "parallel", records, tokenizer, "0" * 64)
    return folder


def batches(folder: Path, split: str, tokens: int = 512, positions: int = 32) -> ParallelBatches:
    return ParallelBatches(
        TokenShards(folder, split, "source"), TokenShards(folder, split, "target"), tokens, 0, positions
    )


def network(vocab_size: int, family: str = "transformer", **sizes: Any) -> Any:
    torch.manual_seed(0)
    shape = {
        "transformer": {"n_head": 4, "d_model": 48, "d_ffn": 96},
        "rnn_seq2seq": {"d_embedding": 32, "d_model": 64},
        "conv_seq2seq": {"d_embedding": 32, "d_model": 48},
        "decoder_translator": {"n_layer": 2, "n_head": 4, "d_model": 48, "d_ffn": 96},
    }[family]
    if family != "decoder_translator":
        shape |= {"encoder_layers": 1, "decoder_layers": 1}
    shape |= {"dropout": 0.0, "max_positions": 32, **sizes}
    module = build({"family": family, "shape": shape, "vocab_size": vocab_size})
    initialize(module, Xavier(embedding_std=0))
    return module


def recipe(
    smoothing: float = 0.0, r_drop: float = 0.0, sampling: float = 0.0, decided_by: Any = "loss"
) -> TranslationRecipe:
    return TranslationRecipe(
        "gradient",
        AdamW("adamw", lr=0.01),
        LinearSchedule("linear"),
        Length(1, "epochs"),
        batch=512,
        label_smoothing=smoothing,
        r_drop=r_drop,
        scheduled_sampling=sampling,
        decided_by=decided_by,
    )


@pytest.fixture
def unequal(tmp_path: Path) -> TranslationTask:
    """A task over pairs of unlike length, an empty target among them."""
    tokenizer, rng = digits_tokenizer(tmp_path / "tokenizer"), random.Random(3)
    pairs = [(random_digits(rng, 20), random_digits(rng, 20)) for _ in range(60)]
    folder = shards(tmp_path / "tokens", tokenizer, {"train": pairs, "valid": [*pairs[:25], ("1", "")]})
    module = network(tokenizer.vocab_size).eval()
    return TranslationTask(module, batches(folder, "train", 96), batches(folder, "valid", 96), recipe(0.1), 10)


def loss_and_gradient(task: TranslationTask, parts: list) -> tuple[float, int, Tensor]:
    total, count = 0.0, 0
    task.module.zero_grad()
    for part in parts:
        loss, targets = task.loss_sum(task.module, tensors(part, CPU))
        loss.backward()
        total, count = total + float(loss), count + int(targets)
    return total, count, torch.cat([parameter.grad.flatten() for parameter in task.module.parameters()])


def test_the_loss_does_not_depend_on_how_a_batch_is_cut(unequal: TranslationTask) -> None:
    task = unequal
    whole = loss_and_gradient(task, [task.batch(2, 0, 1)])
    for parts in (
        micro_batches(task.batch(2, 0, 1), 30),
        [task.batch(2, rank, 3) for rank in range(3)],
    ):
        assert len(parts) > 1
        total, count, gradient = loss_and_gradient(task, parts)
        assert (count, total) == (whole[1], pytest.approx(whole[0], rel=1e-5))
        torch.testing.assert_close(gradient, whole[2], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("metric", ["bleu", "chrf"])
@torch.no_grad()
def test_what_decides_is_sacrebleus_score_of_greedy_translations(
    unequal: TranslationTask, metric: str, tmp_path: Path
) -> None:
    tokenizer = load(tmp_path / "tokenizer")
    settings = recipe(decided_by=metric)
    task = TranslationTask(unequal.module, unequal.train, unequal.valid, settings, 10, tokenizer=tokenizer)
    assert (task.metric, task.higher_is_better) == (f"valid_{metric}", True)
    sums = [task.validation_sums(task.module, tensors(part, CPU)) for part in task.validation_batches(0, 1)]
    found = task.validation_metrics([sum(column) for column in zip(*sums, strict=True)])
    pairs = [
        [tokenizer.decode(side.document(i)[:-1].tolist()) for side in (task.valid.source, task.valid.target)]
        for i in range(26)
    ]
    greedy = translate_lines(task.module, tokenizer, [source for source, _ in pairs], BeamSearch(1), 4096)
    made, right = [one.text for one in greedy], [target for _, target in pairs]
    score = (BLEU(force=True) if metric == "bleu" else CHRF()).corpus_score(made, [right]).score
    assert found[f"valid_{metric}"] == pytest.approx(score)
    plain = [unequal.validation_sums(task.module, tensors(part, CPU)) for part in task.validation_batches(0, 1)]
    loss = unequal.validation_metrics([sum(column) for column in zip(*plain, strict=True)])
    assert found["valid_loss"] == loss["valid_loss"]
    assert f"valid_{metric}" not in loss


@torch.no_grad()
def test_r_drop_by_hand_and_nothing_without_dropout(unequal: TranslationTask) -> None:
    batch = tensors(unequal.batch(0, 0, 1), CPU)
    plain = float(smoothed_sum(unequal.module, batch, 0.1)[0])
    assert float(consistent_sum(unequal.module, batch, 0.1, 5.0)[0]) == pytest.approx(plain, rel=1e-5)
    never = (0, 1, 2, 4)
    fewer = float(smoothed_sum(unequal.module, batch, 0.1, never)[0])
    assert fewer != pytest.approx(plain, rel=1e-4)
    assert float(consistent_sum(unequal.module, batch, 0.1, 5.0, never)[0]) == pytest.approx(fewer, rel=1e-5)
    module, passes = unequal.module, []
    module.train()
    for dropout in (part for part in module.modules() if isinstance(part, Dropout)):
        dropout.probability = 0.3
    torch.manual_seed(0)
    found, count = consistent_sum(module, batch, 0.1, 5.0)
    torch.manual_seed(0)
    for _ in range(2):
        passes.append(module(batch["source"], batch["source_mask"], batch["target_in"]).double().log_softmax(2))
    expected = 0.0
    for row, column in batch["target_mask"].nonzero().tolist():
        p, q = (one[row, column] for one in passes)
        right = batch["target_out"][row, column]
        nats = sum(-0.9 * one[right] - 0.1 * one.mean() for one in (p, q))
        apart = sum((one.exp() * (one - other)).sum() for one, other in ((p, q), (q, p)))
        expected += float(nats / 2 + 5 * apart / 4)
    assert (float(found), count) == (pytest.approx(expected, rel=1e-5), int(batch["target_mask"].sum()))


def test_scheduled_sampling_reads_the_networks_own_tokens_more_and_more(unequal: TranslationTask) -> None:
    task = TranslationTask(unequal.module, unequal.train, unequal.valid, recipe(sampling=0.5), 40)
    assert not task.batch(0, 0, 1)["own"].any()
    steps = [task.batch(step, 0, 1) for step in range(1, 40)]
    early, late = (
        np.mean(np.concatenate([batch["own"][:, 1:][batch["target_mask"][:, 1:]] for batch in some]))
        for some in (steps[:10], steps[-10:])
    )
    assert (early, late) == (pytest.approx(0.07, abs=0.04), pytest.approx(0.43, abs=0.06))
    whole, parts = task.batch(30, 0, 1), [task.batch(30, rank, 2) for rank in range(2)]
    for rank, part in enumerate(parts):
        width = part["own"].shape[1]
        assert np.array_equal(whole["own"][rank::2][:, :width], part["own"])
    batch = tensors(whole, CPU)
    logits = task.module(batch["source"], batch["source_mask"], batch["target_in"])
    expected = batch["target_in"].clone()
    for row, column in batch["own"].nonzero().tolist():
        expected[row, column] = logits[row, column - 1].argmax()
    assert not torch.equal(expected, batch["target_in"])
    assert torch.equal(with_own(task.module, batch)["target_in"], expected)
    loss, count = task.loss_sum(task.module, batch)
    wanted, _ = smoothed_sum(task.module, {**batch, "target_in": expected}, 0.0)
    assert (float(loss), count) == (float(wanted), int(batch["target_mask"].sum()))


def test_valid_is_counted_in_nats_each_target_once(unequal: TranslationTask) -> None:
    task = unequal
    pairs = [
        (tuple(task.valid.source.document(i)[:-1].tolist()), tuple(task.valid.target.document(i)[:-1].tolist()))
        for i in range(26)
    ]
    nats = -sum(score(task.module, [s for s, _ in pairs], [t for _, t in pairs]))
    targets = sum(len(t) + 1 for _, t in pairs)
    for world in (1, 3, 20):  # with 20 some ranks have nothing
        with torch.no_grad():
            sums = [
                task.validation_sums(task.module, tensors(part, CPU))
                for rank in range(world)
                for part in task.validation_batches(rank, world)
            ]
        found = task.validation_metrics([sum(column) for column in zip(*sums, strict=True)])
        assert found["valid_targets"] == targets
        assert found["valid_loss"] == pytest.approx(nats / targets, rel=1e-5)


def by_mark(text: str) -> str:
    """Copy, reverse or sort what follows the first digit, which says which."""
    return (text[1:], text[:0:-1], "".join(sorted(text[1:])))[int(text[0]) % 3]


LEARNERS: list[tuple[str, dict[str, Any], Callable[[str], str], tuple[float, float]]] = [
    ("transformer", {}, lambda text: text, (1.05, 0.95)),
    ("transformer", {}, lambda text: text[::-1], (1.15, 0.85)),
    (
        "transformer",
        {"decoder_mixer": "ssru", "positions": "rotary", "n_kv_head": 1},
        lambda text: text[::-1],
        (1.15, 0.85),
    ),
    ("transformer", {"decoder_mixer": "gated_deltanet", "tied": "decoder"}, lambda text: text, (1.05, 0.95)),
    ("decoder_translator", {"prefix": False}, lambda text: text[::-1], (1.15, 0.85)),
    # How far apart a digit and its copy are depends on the source's length, and all of it is seen at once.
    ("decoder_translator", {"prefix": True}, lambda text: text[::-1], (1.2, 0.7)),
    ("conv_seq2seq", {"encoder_layers": 2, "decoder_layers": 2}, lambda text: text[::-1], (1.05, 0.95)),
    *(
        ("rnn_seq2seq", {"attention": score, "cell": "gru"}, by_mark, (1.15, 0.85))
        for score in ("content", "additive", "location", "general", "dot", "scaled_dot")
    ),
]


@pytest.mark.parametrize(("family", "sizes", "rule", "bounds"), LEARNERS)
def test_it_learns(
    family: str, sizes: dict[str, Any], rule: Callable[[str], str], bounds: tuple[float, float], tmp_path: Path
) -> None:
    """4,000 digit strings of up to 8; seconds on one core."""
    tokenizer, rng = digits_tokenizer(tmp_path / "tokenizer"), random.Random(0)
    # States are within 1, so the scaled score of two is small at first and its weights nearly equal.
    steps = 800 if sizes.get("attention") == "scaled_dot" else 400
    longest = 6 if rule is by_mark else 8
    sources = [random_digits(rng, longest) for _ in range(4000)]
    unseen = [text for text in (random_digits(rng, longest) for _ in range(300)) if text not in set(sources)]
    folder = shards(
        tmp_path / "tokens",
        tokenizer,
        {"train": [(s, rule(s)) for s in sources], "valid": [(s, rule(s)) for s in unseen]},
    )
    module = network(tokenizer.vocab_size, family, **sizes)
    task = TranslationTask(module, batches(folder, "train"), batches(folder, "valid", 2048), recipe(), steps)
    settings = TrainingSettings(
        optimizer=AdamW("adamw", lr=0.008, beta2=0.98, weight_decay=0.0),
        schedule=LinearSchedule("linear"),
        warmup_steps=40,
        steps=steps,
        seed=0,
        validate_every=200,
    )
    execution = Execution(threads=1, checkpoint_root=str(tmp_path / "checkpoints"))
    result = fit(task, settings, execution, name="digits", identity={})
    assert result.metrics["valid_perplexity"] <= bounds[0]
    found = translate_lines(module.eval(), tokenizer, unseen, BeamSearch(2, 0.6), 4096)
    right = sum(one.text == rule(source) for one, source in zip(found, unseen, strict=True))
    assert right >= bounds[1] * len(unseen)
