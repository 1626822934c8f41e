"""The loop on a stand-in for trainings: a parabola. Repeatable, resumed, pruned, sent once; errors of trials."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lexmill import params
from lexmill.base.errors import EXIT_INTERRUPTED, EXIT_TERMINATED, LexmillError, RetryableError, UserError
from lexmill.commands.search import loop, space, trials
from lexmill.commands.search.loop import Loop, Place
from lexmill.commands.trainings import running
from lexmill.runner.supervised import Listener, Outcome, Stop

ROOT = Path(__file__).parents[3]
LOOKS = 5


class Parabola:
    """In place of `Scratch`: the loss of a learning rate, with LOOKS looks on its way there."""

    fail: Mapping[int, Outcome] = {}
    kill_at: int = -1

    def __init__(self, folder: Path, root: Path, models: Collection[str]) -> None:
        self._points = folder / "points.jsonl"
        self.ran: list[tuple[int, float]] = []
        self._losses: list[float] = []

    def points(self, model: str) -> Path:
        return self._points

    @contextmanager
    def execution(self) -> Iterator[None]:
        yield

    def begin(self, trial: str, model: str, params: Mapping[str, Any]) -> None:
        self.ran.append((int(trial), params["models"][model]["recipe"]["optimizer"]["lr"]))
        self._points.unlink(missing_ok=True)

    def run(self, stage: str, stop: Stop, listener: Listener) -> Outcome:
        number, lr = self.ran[-1]
        if number == self.kill_at:
            raise KeyboardInterrupt
        if number in self.fail:
            return self.fail[number]
        losses = [(lr - 0.03) ** 2 + 1 / (look + 1) for look in range(LOOKS)]
        self._losses = [float(f"{loss:.8g}") for loss in losses]  # as a curve's file has them
        rows = [json.dumps({"kind": "row", "step": n, "time": 1, "valid_loss": v}) for n, v in enumerate(self._losses)]
        asked = threading.Event()
        stop.attach(lambda _: asked.set())
        for shown in range(LOOKS):
            with open(self._points, "a") as stream:
                stream.write(f"{rows[shown]}\n")
            if asked.wait(0.01):
                return Outcome("train@gpt", "stopped", EXIT_TERMINATED, 0.0)
        return Outcome("train@gpt", "ran", 0, 0.0)

    def ended(self) -> None:
        return

    def looks(self, model: str) -> list[float]:
        return self._losses

    def value(self, model: str) -> float:
        return self._losses[-1]


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "Scratch", Parabola)
    monkeypatch.setattr(running, "_WATCH_SECONDS", 0.005)
    monkeypatch.setenv("LEXMILL_EXECUTION", "local")
    monkeypatch.setattr(Parabola, "fail", {})
    monkeypatch.setattr(Parabola, "kill_at", -1)


def begun(folder: Path, count: int = 8, pruner: Any = "median", after: Any = lambda _: None) -> Loop:
    lr = space.LogUniform("log_uniform", 0.001, 0.1)
    search = space.Search("gpt", count, 7, pruner, 3, {"recipe.optimizer.lr": lr})
    about = space.target(search, params.load(ROOT / "params.yaml"), ROOT)
    return Loop(Place("mine", "0" * 64, folder), search, about, ROOT, after)


def trials_of(folder: Path) -> list[tuple[Any, ...]]:
    return [(one.number, one.state, one.values, one.valid_loss, one.looks) for one in trials.read(folder)]


def test_a_search_finds_the_same_again_and_ends_what_is_hopeless(tmp_path: Path) -> None:
    assert begun(tmp_path / "a").run() == 0
    assert begun(tmp_path / "b").run() == 0
    found = trials_of(tmp_path / "a")
    assert found == trials_of(tmp_path / "b")
    assert len(found) == 8
    states = {state for _, state, *_ in found}
    assert states == {"complete", "pruned"}
    assert all(looks == LOOKS for _, state, _, _, looks in found if state == "complete")
    assert all(1 < looks <= LOOKS for _, state, _, _, looks in found if state == "pruned")
    best = trials.best(trials.read(tmp_path / "a"))
    assert best is not None
    assert best.valid_loss == min(loss for _, state, _, loss, _ in found if state == "complete")


def test_a_search_that_was_interrupted_is_the_undisturbed_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun(tmp_path / "a").run()
    monkeypatch.setattr(Parabola, "kill_at", 4)
    with pytest.raises(KeyboardInterrupt):
        begun(tmp_path / "b").run()
    assert len(trials_of(tmp_path / "b")) == 4
    monkeypatch.setattr(Parabola, "kill_at", -1)
    going_on = begun(tmp_path / "b")
    assert going_on.run() == 0
    assert trials_of(tmp_path / "a") == trials_of(tmp_path / "b")
    assert [number for number, _ in going_on._scratch.ran] == [4, 5, 6, 7]


def test_more_trials_go_on_where_it_ended(tmp_path: Path) -> None:
    begun(tmp_path / "a", 8).run()
    begun(tmp_path / "b", 3).run()
    begun(tmp_path / "b", 8).run()
    assert trials_of(tmp_path / "a") == trials_of(tmp_path / "b")
    assert begun(tmp_path / "b", 8).run() == 0  # nothing is left to do
    assert len(trials_of(tmp_path / "b")) == 8


@pytest.mark.parametrize("pruner", ["hyperband", "none"])
def test_other_ways_to_end_trials(tmp_path: Path, pruner: str) -> None:
    begun(tmp_path, 6, pruner).run()
    states = {state for _, state, *_ in trials_of(tmp_path)}
    assert "complete" in states
    assert pruner == "hyperband" or states == {"complete"}


def test_values_are_short_and_within_their_bounds(tmp_path: Path) -> None:
    begun(tmp_path, 4).run()
    for _, _, values, *_ in trials_of(tmp_path):
        assert 0.001 <= values["recipe.optimizer.lr"] <= 0.1
        assert values["recipe.optimizer.lr"] == float(f"{values['recipe.optimizer.lr']:.4g}")


def test_a_trial_that_fails_is_kept_and_the_search_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    diverged = Outcome("train@gpt", "failed", 2, 0.0, "too many skipped steps")
    killed = Outcome("train@gpt", "failed", 1, 0.0, "killed (signal 9): out of memory")
    monkeypatch.setattr(Parabola, "fail", {0: diverged, 2: killed})
    assert begun(tmp_path, 4).run() == 0
    assert [one.state for one in trials.read(tmp_path)][::2] == ["failed", "failed"]
    assert trials.read(tmp_path)[0].message == "too many skipped steps"


def test_what_may_pass_and_what_is_a_bug_stop_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = Outcome("train@gpt", "failed", 75, 0.0, "the disk is full")
    monkeypatch.setattr(Parabola, "fail", {1: full})
    with pytest.raises(RetryableError, match="the same command resumes this trial"):
        begun(tmp_path).run()
    monkeypatch.setattr(Parabola, "fail", {1: Outcome("train@gpt", "failed", 1, 0.0, "Traceback ...")})
    with pytest.raises(LexmillError, match="Traceback"):
        begun(tmp_path).run()
    assert len(trials.read(tmp_path)) == 1
    monkeypatch.setattr(Parabola, "fail", {})
    assert begun(tmp_path, 3).run() == 0


def test_a_search_that_only_fails_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Parabola, "fail", dict.fromkeys(range(9), Outcome("train@gpt", "failed", 2, 0.0, "the corpus is empty"))
    )
    with pytest.raises(UserError, match="the first 3 trials all failed, the last one with: the corpus is empty"):
        begun(tmp_path).run()


def test_a_stop_leaves_the_trial_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop_at_once(self: Parabola, stage: str, stop: Stop, listener: Any) -> Outcome:
        stop.request(EXIT_INTERRUPTED)
        time.sleep(0.05)
        return Outcome("train@gpt", "stopped", EXIT_INTERRUPTED, 0.0)

    with monkeypatch.context() as patch:
        patch.setattr(Parabola, "run", stop_at_once)
        assert begun(tmp_path, 2).run() == EXIT_INTERRUPTED
    assert trials.read(tmp_path) == []
    assert begun(tmp_path, 2).run() == 0
    assert [one.number for one in trials.read(tmp_path)] == [1, 2]
