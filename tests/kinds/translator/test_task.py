"""The smoothed loss beside torch's, the task's sums, and proofs that a translator learns."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from lexmill.compute.execution import Execution
from lexmill.data.encoding import encode_corpus
from lexmill.data.shards import TokenShards
from lexmill.decoding.settings import BeamSearch
from lexmill.kinds.translator.batches import ParallelBatches
from lexmill.kinds.translator.predict import translate_lines
from lexmill.kinds.translator.task import TranslationTask
from lexmill.models.common.init import Xavier, initialize
from lexmill.models.transformer.model import Transformer
from lexmill.models.transformer.shape import Shape as TransformerShape
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


def network(vocab_size: int, layers: int = 1, width: int = 48, dropout: float = 0.0) -> Transformer:
    torch.manual_seed(0)
    module = Transformer(TransformerShape(layers, layers, 4, width, 2 * width, dropout, "pre", 32), vocab_size)
    initialize(module, Xavier(embedding_std=0))
    return module


@pytest.fixture
def unequal(tmp_path: Path) -> TranslationTask:
    """A task over pairs of unlike length, an empty target among them."""
    tokenizer, rng = digits_tokenizer(tmp_path / "tokenizer"), random.Random(3)
    pairs = [(random_digits(rng, 20), random_digits(rng, 20)) for _ in range(60)]
    folder = shards(tmp_path / "tokens", tokenizer, {"train": pairs, "valid": [*pairs[:25], ("1", "")]})
    module = network(tokenizer.vocab_size).eval()
    return TranslationTask(module, batches(folder, "train", 96), batches(folder, "valid", 96), 0.1)


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


@pytest.mark.parametrize(
    ("rule", "most_perplexity", "least_right"),
    [(lambda text: text, 1.05, 0.95), (lambda text: text[::-1], 1.15, 0.85)],
    ids=["copy", "reverse"],
)
def test_it_learns(rule: Callable[[str], str], most_perplexity: float, least_right: float, tmp_path: Path) -> None:
    """4,000 digit strings of up to 8; seconds on one core."""
    tokenizer, rng = digits_tokenizer(tmp_path / "tokenizer"), random.Random(0)
    sources = [random_digits(rng) for _ in range(4000)]
    unseen = [text for text in (random_digits(rng) for _ in range(300)) if text not in set(sources)]
    folder = shards(
        tmp_path / "tokens",
        tokenizer,
        {"train": [(s, rule(s)) for s in sources], "valid": [(s, rule(s)) for s in unseen]},
    )
    module = network(tokenizer.vocab_size)
    task = TranslationTask(module, batches(folder, "train"), batches(folder, "valid", 2048), 0.0)
    settings = TrainingSettings(
        optimizer=AdamW("adamw", lr=0.008, beta2=0.98, weight_decay=0.0),
        schedule=LinearSchedule("linear"),
        warmup_steps=40,
        steps=400,
        seed=0,
        validate_every=200,
    )
    execution = Execution(threads=1, checkpoint_root=str(tmp_path / "checkpoints"))
    result = fit(task, settings, execution, name="digits", identity={})
    assert result.metrics["valid_perplexity"] <= most_perplexity
    found = translate_lines(module.eval(), tokenizer, unseen, BeamSearch(2, 0.6), 4096)
    right = sum(one.text == rule(source) for one, source in zip(found, unseen, strict=True))
    assert right >= least_right * len(unseen)
