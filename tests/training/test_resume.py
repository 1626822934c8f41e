"""A training that was killed, at whatever moment, ends like one that was not: to the bit."""

import os
import random
import shutil
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from lexmill.base.errors import EXIT_TERMINATED, Interrupted, Terminated, UserError
from lexmill.base.storage import read_json, sha256_file, sha256_folder, write_json
from lexmill.models import families
from lexmill.models.common.state import snapshot
from lexmill.training.checkpoints import CheckpointFolder
from lexmill.training.engine import FitResult
from lexmill.training.task import Arrays
from tests.training import ranks_at_once
from tests.training.arithmetic_task import ArithmeticTask, DyingTask, settings, train

STEPS = 20
PLAN: dict[str, Any] = {"task": {"dropout": 0.3}, "settings": {"steps": STEPS}}


def run(root: Path, out: Path, **plan: Any) -> tuple[int, str]:
    return ranks_at_once.alone(root, out, {**PLAN, **plan})


def assert_same_bits(one: nn.Module, other: nn.Module) -> None:
    weights = snapshot(other)
    for name, value in snapshot(one).items():
        assert torch.equal(value, weights[name]), name


def last_checkpoint(root: Path) -> Path:
    (folder,) = root.iterdir()
    return max(folder.glob("step-*"))


def test_kills_and_stops_leave_no_trace_in_the_result(tmp_path: Path) -> None:
    """kill -9 in a step, kill -9 in a save, SIGTERM, Ctrl-C, each in its own process; then to the end."""
    out = tmp_path / "out.safetensors"
    code, message = run(tmp_path / "a", out, die_at=5, signal=int(signal.SIGKILL))
    assert code == -signal.SIGKILL, message
    # Step 5's may not have been written to its end.
    assert last_checkpoint(tmp_path / "a").name in ("step-00000004", "step-00000005")
    code, message = run(tmp_path / "a", out, die_in_save=9)
    assert code == -signal.SIGKILL, message
    assert not (last_checkpoint(tmp_path / "a") / "COMPLETE").exists()
    code, message = run(tmp_path / "a", out, die_at=12, signal=int(signal.SIGTERM))
    assert (code, out.exists()) == (EXIT_TERMINATED, False), message
    assert "resumes after step 8" in message
    assert "stopped after step 13; the same command resumes from there" in message
    with pytest.raises(Interrupted, match="stopped after step 17"):
        train(DyingTask(16, signal.SIGINT, dropout=0.3), tmp_path / "a", settings(steps=STEPS))
    disturbed, undisturbed = ArithmeticTask(dropout=0.3), ArithmeticTask(dropout=0.3)
    ended = train(disturbed, tmp_path / "a", settings(steps=STEPS))
    result = train(undisturbed, tmp_path / "b", settings(steps=STEPS))
    assert_same_bits(disturbed.module, undisturbed.module)
    assert (ended.metrics, ended.rows, ended.tokens) == (result.metrics, result.rows, result.tokens)
    # Weights, optimizer, best weights, curve and random states of the last checkpoint.
    a, b = last_checkpoint(tmp_path / "a"), last_checkpoint(tmp_path / "b")
    assert a.name == b.name == "step-00000019"
    assert {"optimizer.safetensors", "weights.safetensors"} <= {path.name for path in a.iterdir()}
    assert sha256_folder(a) == sha256_folder(b)


@pytest.mark.parametrize("family", families("causal"))
def test_every_causal_family_ends_after_a_kill_as_without_it_to_the_bit(tmp_path: Path, family: str) -> None:
    """kill -9 in a process of its own, then on to the end in this one."""
    options: dict[str, Any] = {"family": family, "dropout": 0.2}
    out = tmp_path / "out.safetensors"
    plan = {"task": options, "settings": {"steps": 6}, "die_at": 3, "signal": int(signal.SIGKILL)}
    code, message = ranks_at_once.alone(tmp_path / "a", out, plan)
    assert code == -signal.SIGKILL, message
    assert last_checkpoint(tmp_path / "a").name in ("step-00000002", "step-00000003")
    disturbed, undisturbed = ArithmeticTask(**options), ArithmeticTask(**options)
    ended = train(disturbed, tmp_path / "a", settings(steps=6))
    result = train(undisturbed, tmp_path / "b", settings(steps=6))
    assert 0 < ended.steps_now < result.steps_now == 6
    assert_same_bits(disturbed.module, undisturbed.module)
    assert (ended.metrics, ended.rows) == (result.metrics, result.rows)
    assert sha256_folder(last_checkpoint(tmp_path / "a")) == sha256_folder(last_checkpoint(tmp_path / "b"))


def stopped_and_resumed(tmp_path: Path, at: int, **changes: Any) -> tuple[ArithmeticTask, FitResult]:
    chosen = settings(**changes)
    with pytest.raises(Terminated):
        train(DyingTask(at, signal.SIGTERM, dropout=0.1), tmp_path, chosen, checkpoint_seconds=1e9)
    task = ArithmeticTask(dropout=0.1)
    return task, train(task, tmp_path, chosen, checkpoint_seconds=1e9)


@pytest.mark.parametrize("keep", ["average", "average_best"])
@pytest.mark.parametrize("at", [0, 6, 10])
def test_averages_survive(tmp_path: Path, at: int, keep: str) -> None:
    changes: dict[str, Any] = {"keep": keep, "averaged": 3, "validate_every": 3, "steps": 12}
    task, result = stopped_and_resumed(tmp_path / "a", at, **changes)
    assert result.steps_now == 12 - (at + 1)  # from where it was stopped, not from the start
    straight = ArithmeticTask(dropout=0.1)
    assert train(straight, tmp_path / "b", settings(**changes)).metrics == result.metrics
    assert_same_bits(task.module, straight.module)


class Scripted(DyingTask):
    """Its metric at each look is given: the second is the best, the fifth is the third without a gain.

    Before each step it draws from all generators, which only a step seeds.
    """

    metric = "score"

    def __init__(self, looked: int, die_at: int = -1) -> None:
        super().__init__(die_at, signal.SIGTERM, dropout=0.1)
        self.scores = iter((0.9, 0.1, 0.8, 0.7, 0.6, 0.5, 0.05)[looked:])
        self.drawn: list[float] = []

    def batch(self, step: int, rank: int, world: int) -> Arrays:
        self.drawn += [random.random(), float(np.random.random()), float(torch.rand(()))]
        return super().batch(step, rank, world)

    def validation_metrics(self, sums: Any) -> dict[str, float]:
        return {**super().validation_metrics(sums), "score": next(self.scores)}


def test_early_stopping_and_random_generators_go_on(tmp_path: Path) -> None:
    """Stopped when patience is partly spent: who forgot that would go on, and so would who forgot what was best."""
    chosen = settings(patience=3, validate_every=1, steps=7)
    with pytest.raises(Terminated, match="stopped after step 4"):  # in its fourth step, before the fourth look
        train(Scripted(0, die_at=3), tmp_path / "a", chosen, checkpoint_seconds=1e9)
    task, straight = Scripted(3), Scripted(0)
    result = train(task, tmp_path / "a", chosen, checkpoint_seconds=1e9)
    wanted = train(straight, tmp_path / "b", chosen, checkpoint_seconds=1e9)
    assert (result.step, result.best_step, result.stopped_early, result.metrics["score"]) == (5, 2, True, 0.1)
    assert (result.step, result.best_step, result.rows) == (wanted.step, wanted.best_step, wanted.rows)
    assert task.drawn == straight.drawn[3 * 4 :]
    assert_same_bits(task.module, straight.module)


def test_the_last_step_can_be_stopped_but_not_lost(tmp_path: Path) -> None:
    """The look at its end is left at once, and made by the next process, which has no step left to do."""
    with pytest.raises(Terminated, match="stopped after step 12"):
        train(DyingTask(11, signal.SIGTERM), tmp_path / "a", settings(steps=12))
    task, straight = ArithmeticTask(), ArithmeticTask()
    result, wanted = (
        train(task, tmp_path / "a", settings(steps=12)),
        train(straight, tmp_path / "b", settings(steps=12)),
    )
    assert (result.step, result.steps_now) == (12, 0)
    assert (result.rows, result.metrics) == (wanted.rows, wanted.metrics)
    assert_same_bits(task.module, straight.module)


class StoppedInALook(ArithmeticTask):
    """Gets a signal in a validation batch, and must see no other one."""

    def __init__(self, look: int, batch: int) -> None:
        super().__init__(dropout=0.1, valid_batches=50)
        self.looks, self.at, self.seen = 0, (look, batch), 0

    def validation_batches(self, rank: int, world: int) -> Iterable[Arrays]:
        self.looks += 1
        for index, rows in enumerate(super().validation_batches(rank, world)):
            if (self.looks, index) == self.at:
                os.kill(os.getpid(), signal.SIGTERM)
            self.seen += self.looks == self.at[0]
            yield rows


@pytest.mark.parametrize(("look", "keep", "step"), [(2, "best", 8), (3, "best", 12), (4, "average", 12)])
def test_a_look_is_left_within_a_batch_and_made_again(tmp_path: Path, look: int, keep: str, step: int) -> None:
    """Between two steps, after the last one, and of the averaged weights at the very end."""
    chosen, stopped = settings(keep=keep), StoppedInALook(look, 7)
    with pytest.raises(Terminated, match=f"stopped after step {step}"):
        train(stopped, tmp_path / "a", chosen, checkpoint_seconds=1e9)
    assert (stopped.looks, stopped.seen) == (look, 8)
    task, straight = StoppedInALook(0, 0), StoppedInALook(0, 0)
    result = train(task, tmp_path / "a", chosen, checkpoint_seconds=1e9)
    wanted = train(straight, tmp_path / "b", chosen, checkpoint_seconds=1e9)
    assert (result.rows, result.metrics, result.steps_now) == (wanted.rows, wanted.metrics, 12 - step)
    assert_same_bits(task.module, straight.module)


def test_a_resumed_step_that_is_stopped_again_keeps_its_checkpoint(tmp_path: Path) -> None:
    """A second write of the same would for a moment leave only the one before."""
    written = []
    for look in (2, 1):  # of each process
        with pytest.raises(Terminated, match="stopped after step 8"):
            train(StoppedInALook(look, 7), tmp_path, settings(), checkpoint_seconds=1e9)
        written.append((last_checkpoint(tmp_path) / "COMPLETE").stat().st_mtime_ns)
    assert written[0] == written[1]


def test_the_handlers_of_the_caller_come_back(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    train(ArithmeticTask(), tmp_path, settings(steps=4))
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_other_settings_or_inputs_start_anew(tmp_path: Path) -> None:
    with pytest.raises(Terminated):
        train(DyingTask(6, signal.SIGTERM), tmp_path)
    train(ArithmeticTask(), tmp_path, settings(clip_norm=0.5))
    first, other = sorted(tmp_path.iterdir())
    assert read_json(first / "identity.json") != read_json(other / "identity.json")


@pytest.fixture
def folder(tmp_path: Path) -> CheckpointFolder:
    return CheckpointFolder(tmp_path, "m", {"tokens": "a", "seed": 1})


def save(folder: CheckpointFolder, *steps: int) -> None:
    for step in steps:
        folder.save(step, {"note": step}, {"weights": {"w": torch.full((3,), float(step))}})


def test_the_newest_two_are_kept(folder: CheckpointFolder) -> None:
    (folder.path / "step-notes").mkdir(parents=True)
    save(folder, 3, 20, 100)
    (folder.path / "step-notes").rmdir()  # somebody else's, so still there
    assert sorted(path.name for path in folder.path.glob("step-*")) == ["step-00000020", "step-00000100"]
    assert folder.latest() == 100
    saved = folder.open(100)
    assert (saved.step, saved.state["note"]) == (100, 100)
    assert torch.equal(saved.read("weights")["w"], torch.full((3,), 100.0))


@pytest.mark.parametrize("damage", ["unmarked", "cut", "gone", "flipped", "bad mark", "empty mark"])
def test_what_is_damaged_is_passed_over(folder: CheckpointFolder, damage: str) -> None:
    save(folder, 1, 2)
    newest = folder.path / "step-00000002"
    weights, mark = newest / "weights.safetensors", newest / "COMPLETE"
    if damage == "unmarked":
        mark.unlink()
    elif damage == "cut":
        weights.write_bytes(weights.read_bytes()[:-1])
    elif damage == "gone":
        weights.unlink()
    elif damage == "flipped":
        data = weights.read_bytes()
        weights.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    elif damage == "bad mark":
        mark.write_text("{", encoding="utf-8")
    else:
        mark.write_text('{"files": {}}', encoding="utf-8")
    assert folder.latest() == 1


def test_a_damaged_one_that_was_passed_over_goes_at_the_next_save(folder: CheckpointFolder) -> None:
    save(folder, 1, 2, 9)
    (folder.path / "step-00000009" / "COMPLETE").unlink()
    save(folder, 4)
    assert sorted(path.name for path in folder.path.glob("step-*")) == ["step-00000002", "step-00000004"]


def test_a_step_that_is_saved_again_replaces_the_old_one_whole(folder: CheckpointFolder) -> None:
    """Neither a second folder beside it, of which a resume takes the older, nor a file of the old one in the new."""
    tensors = {"weights": {"w": torch.zeros(3)}, "best": {"w": torch.zeros(3)}}
    folder.save(5, {"note": "old"}, tensors)
    save(folder, 5)
    assert [path.name for path in folder.path.glob("step-*")] == ["step-00000005"]
    assert folder.latest() == 5
    saved = folder.open(5)
    assert saved.state["note"] == 5
    assert set(saved.files) == {"weights"}
    assert torch.equal(saved.read("weights")["w"], torch.full((3,), 5.0))


def test_a_root_that_is_no_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "root").write_text("a file", encoding="utf-8")
    with pytest.raises(UserError, match=r"cannot be written here .* choose another checkpoint_root"):
        train(ArithmeticTask(), tmp_path / "root")


def test_nothing_there_is_nothing_to_resume(folder: CheckpointFolder) -> None:
    assert folder.latest() is None
    folder.path.mkdir()
    (folder.path / ".step-00000007.123.tmp").mkdir()
    assert folder.latest() is None


def test_what_a_killed_writer_left_is_removed_by_the_next_training(folder: CheckpointFolder) -> None:
    save(folder, 7)
    left = folder.path / ".step-00000009.123.tmp"
    left.mkdir()
    with folder.locked():
        assert not left.exists()
    assert folder.latest() == 7


def test_a_checkpoint_of_another_training_is_refused_by_name(folder: CheckpointFolder) -> None:
    save(folder, 4)
    other = CheckpointFolder(folder.path.parent, "m", {"tokens": "b", "seed": 1, "code": "x"})
    shutil.copytree(folder.path, other.path)
    with pytest.raises(UserError, match=r"step-00000004: .*another training; what differs: code, tokens\."):
        other.latest()
    shorter = CheckpointFolder(folder.path.parent, "m", {"tokens": "a"})
    shutil.copytree(folder.path, shorter.path)
    with pytest.raises(UserError, match=r"what differs: seed\."):
        shorter.latest()
    # Also when someone has edited the mark to fit.
    state = other.path / "step-00000004" / "state.json"
    write_json(state, {**read_json(state), "identity": {"tokens": "c"}})
    mark = read_json(state.with_name("COMPLETE"))
    write_json(state.with_name("COMPLETE"), {**mark, "files": {**mark["files"], "state.json": sha256_file(state)}})
    with pytest.raises(UserError, match="what differs: code, seed, tokens"):
        other.latest()


def test_a_tuple_in_the_identity_is_the_list_that_json_gives_back(tmp_path: Path) -> None:
    """As the mixers in the shape of linear attention."""
    known = {"config": {"shape": {"mixers": ("gla", "attention")}}, "length": 8}
    save(CheckpointFolder(tmp_path, "m", known), 4)
    again, longer = CheckpointFolder(tmp_path, "m", known), CheckpointFolder(tmp_path, "m", {**known, "length": 9})
    assert again.latest() == 4
    assert [path for path, _ in longer.relatives(lambda identity: {**identity, "length": 0})] == [again.path]


def test_removal_takes_all_of_it(folder: CheckpointFolder) -> None:
    save(folder, 1)
    folder.finish()
    folder.finish()
    assert not folder.path.exists()
