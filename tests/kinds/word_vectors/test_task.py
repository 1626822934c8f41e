"""The two tasks: batches are functions of the step, ranks share them, resumes leave no trace, classes are learned."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lexmill import models
from lexmill.base.errors import Terminated, UserError
from lexmill.kinds.word_vectors.cells import cooccurrences
from lexmill.kinds.word_vectors.pairs import EpochPairs, KnownTokens, generator, keep_probabilities
from lexmill.kinds.word_vectors.task import CellsTask, PairsTask
from lexmill.models.common.init import Xavier, initialize
from lexmill.models.common.state import snapshot
from lexmill.params.optimizers import AdaGrad
from lexmill.training.task import Arrays
from tests.kinds.word_vectors.made_text import CLASSES, FIRST, WORDS, known, of_two_kinds
from tests.training.arithmetic_task import settings, train

SHAPES: dict[str, dict[str, Any]] = {
    "skip_gram": {"d_model": 12, "window": 2, "negatives": 3, "subsample": 0.1},
    "glove": {"d_model": 12, "window": 2, "x_max": 10.0, "alpha": 0.75},
}
TASKS: dict[str, type[PairsTask | CellsTask]] = {"skip_gram": PairsTask, "glove": CellsTask}
EVERY = sorted(SHAPES)


def texts() -> tuple[KnownTokens, KnownTokens]:
    size = len(WORDS)
    return known(*of_two_kinds(60, 20), size=size), known(*of_two_kinds(3, 20, seed=1), size=size)


def made(family: str, batch: int = 32, seed: int = 1, task: Any = None, **changes: Any) -> Any:
    torch.manual_seed(0)
    shape = {**SHAPES[family], **changes}
    module: Any = models.build({"family": family, "shape": shape, "vocab_size": FIRST + len(WORDS)})
    initialize(module, Xavier(embedding_std=0.1))
    text, valid = texts()
    sizes = models.family(family).shape(**shape)
    return (task or TASKS[family])(module, text, valid, sizes, batch=batch, seed=seed)


def rows(batch: Arrays) -> list[tuple[Any, ...]]:
    return [tuple(map(str, row)) for row in zip(*batch.values(), strict=True)]


@pytest.mark.parametrize("family", EVERY)
def test_a_batch_is_a_function_of_step_and_seed(family: str) -> None:
    task, other = made(family), made(family)
    steps = [0, 5, 200, 5, 0]
    found = [rows(task.batch(step, 0, 1)) for step in steps]
    assert found[1] == found[3]
    assert found[0] == found[4]
    assert found == [rows(other.batch(step, 0, 1)) for step in steps]
    assert found[0] != found[1] != found[2]
    assert rows(made(family, seed=2).batch(0, 0, 1)) != found[0]
    assert all(len(one) == 32 for one in found)


@pytest.mark.parametrize("world", [2, 3, 40])
@pytest.mark.parametrize("family", EVERY)
def test_the_rows_of_all_ranks_are_the_batch(family: str, world: int) -> None:
    task = made(family)
    for step in (0, 7, 1000):
        whole = rows(task.batch(step, 0, 1))
        shares = [rows(task.batch(step, rank, world)) for rank in range(world)]
        for rank, share in enumerate(shares):
            assert share == whole[rank::world], "a rank beyond the rows has none"


@pytest.mark.parametrize("family", EVERY)
def test_validation_is_the_whole_split_on_any_number_of_ranks(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lexmill.kinds.word_vectors.task._VALID_ROWS", 7)
    task = made(family)
    (first, *_), whole = task.validation_batches(0, 1), list(task.validation_batches(0, 1))
    assert rows(first) == rows(whole[0]), "the same every time"
    assert sum(len(rows(one)) for one in whole) == task.validation_size
    for world in (2, 5):
        shares = [rows(one) for rank in range(world) for one in task.validation_batches(rank, world)]
        assert sorted(shares) == sorted(map(rows, whole))


def test_each_pair_of_an_epoch_comes_once() -> None:
    task = made("skip_gram", batch=16)
    text, _ = texts()
    pairs = EpochPairs(text, keep_probabilities(text.counts, 0.1), 2, generator(1, "pairs", 0))
    assert task.steps_per_epoch == round(len(pairs) / 16)
    some = [row for step in range(task.steps_per_epoch) for row in zip(*_pair(task.batch(step, 0, 1)), strict=True)]
    every = list(zip(*(array.tolist() for array in pairs.at(np.arange(len(pairs)))), strict=True))
    twice, never = Counter(some) - Counter(every), Counter(every) - Counter(some)
    assert twice.total() + never.total() == abs(len(some) - len(every)) <= 8, "but for the rounding of the last step"
    assert _pair(task.batch(0, 0, 1)) != _pair(task.batch(task.steps_per_epoch, 0, 1)), "the next is drawn anew"
    assert task.epochs(2 * task.steps_per_epoch) == 2


def _pair(batch: Arrays) -> tuple[list[int], list[int]]:
    return batch["centres"].tolist(), batch["contexts"].tolist()


def test_each_cell_comes_once_an_epoch_with_its_count() -> None:
    task, (text, _) = made("glove", batch=16), texts()
    cells = cooccurrences(text, 2)
    every = list(
        zip(cells.rows.tolist(), cells.columns.tolist(), cells.counts.astype(np.float32).tolist(), strict=True)
    )
    steps = [task.batch(step, 0, 1) for step in range(2 * task.steps_per_epoch)]
    some = [tuple(row) for one in steps for row in zip(*(array.tolist() for array in one.values()), strict=True)]
    assert sorted(some[: len(every)]) == sorted(every)
    second = some[len(every) : 2 * len(every)]  # a batch goes on into the next epoch
    assert sorted(second) == sorted(every)
    assert second != some[: len(every)]
    assert task.steps_per_epoch == -(-len(every) // 16)


def test_counts_of_the_valid_split_are_those_of_a_text_as_large_as_train() -> None:
    task, (text, valid) = made("glove"), texts()
    found = np.concatenate([one["counts"] for one in task.validation_batches(0, 1)])
    assert found.sum() == pytest.approx(cooccurrences(text, 2).counts.sum(), rel=1e-5)
    assert len(found) == len(cooccurrences(valid, 2).counts)


@pytest.mark.parametrize("family", EVERY)
def test_a_stopped_training_ends_like_one_that_was_not(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dying, chosen = made(family), settings(steps=9)
    original = dying.batch

    def batch(step: int, rank: int, world: int) -> Arrays:
        if step == 5:
            os.kill(os.getpid(), signal.SIGTERM)
        return original(step, rank, world)

    monkeypatch.setattr(dying, "batch", batch)
    with pytest.raises(Terminated):
        train(dying, tmp_path / "a", chosen)
    task, straight = made(family), made(family)
    ended, result = train(task, tmp_path / "a", chosen), train(straight, tmp_path / "b", chosen)
    assert ended.steps_now < 9
    assert (ended.metrics, ended.rows, ended.tokens) == (result.metrics, result.rows, result.tokens)
    assert result.tokens == 9 * 32, "a batch is so many pairs"
    ours, theirs = snapshot(task.module), snapshot(straight.module)
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)


@pytest.mark.parametrize(("family", "alike"), [("skip_gram", 1), ("glove", 2)])
def test_words_that_are_used_alike_become_neighbours(family: str, alike: int, tmp_path: Path) -> None:
    """Skip-gram: the nearest word is of the same class; GloVe's sums are near their contexts too: of the same two."""
    window = {"window": 1, "subsample": 1.0} if family == "skip_gram" else {"window": 3}
    task = made(family, batch=128, **window)
    chosen = {"warmup_steps": 0, "validate_every": 100, "clip_norm": 0, "optimizer": AdaGrad("adagrad", lr=0.2)}
    result = train(task, tmp_path, settings(steps=200, **chosen), checkpoint_seconds=1e9)
    vectors = torch.nn.functional.normalize(task.module.embedding.weight.detach()[FIRST:])
    nearest = (vectors @ vectors.T).fill_diagonal_(-1).argmax(dim=1)
    size = alike * len(CLASSES[0])
    assert (nearest // size).tolist() == [row // size for row in range(len(WORDS))]
    assert result.rows[-1]["train_loss"] < result.rows[0]["train_loss"]


def test_subsampling_that_leaves_nothing_is_an_error() -> None:
    with pytest.raises(UserError, match=r"shape\.subsample leaves no pair of the train split; raise it"):
        made("skip_gram", subsample=1e-12)
