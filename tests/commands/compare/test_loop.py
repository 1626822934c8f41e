"""The loop on a stand-in for trainings: a parabola over the logarithm of the rate. Tuned, resumed, never repeated."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest

from lexmill.base.errors import EXIT_INTERRUPTED, LexmillError, RetryableError
from lexmill.commands.compare.loop import Loop, Plan
from lexmill.commands.compare.subjects import Subject
from lexmill.commands.trainings import running, seeded
from lexmill.commands.trainings.seeded import Stopped
from lexmill.runner.supervised import Listener, Outcome, Stop
from tests.commands.compare.conftest import preset
from tests.support.small_project import params_of

BEST = 0.01  # the rate of the lowest loss


class Parabola:
    """In place of `Scratch`."""

    ran: ClassVar[list[tuple[str, float, int]]] = []  # stage, rate, seed
    cache: ClassVar[set[tuple[str, str, float, int]]] = set()  # DVC's
    kill_at: ClassVar[int] = -1
    fail: ClassVar[Mapping[float, Outcome]] = {}

    def __init__(self, folder: Path, root: Path, models: Collection[str]) -> None:
        self._rate, self._seed, self._folder = 0.0, 0, folder

    @contextmanager
    def execution(self) -> Iterator[None]:
        yield

    def begin(self, trial: str, model: str, params: Mapping[str, Any]) -> None:
        self._rate = params["models"][model]["recipe"]["optimizer"]["lr"]
        self._seed = params["training_seed"]

    def run(self, stage: str, stop: Stop, listener: Listener, *, force: bool = False) -> Outcome:
        if len(self.ran) == self.kill_at:
            raise KeyboardInterrupt
        outcome = self.fail.get(self._rate, Outcome(stage, "ran", 0, 0.0))
        cached = (str(self._folder), stage, self._rate, self._seed)
        if cached in self.cache:
            return Outcome(stage, "restored", 0, 0.0)
        self.ran.append(cached[1:])
        if outcome.code == 0:
            self.cache.add(cached)
        return outcome

    def points(self, model: str) -> Path:
        return Path("nothing.jsonl")

    def ended(self) -> None:
        return

    def value(self, model: str) -> float:
        return 2 + math.log2(self._rate / BEST) ** 2 + self._seed / 100

    def metrics(self, stage: str, model: str) -> dict[str, Any]:
        if stage == "train":
            return {"steps": 8, "tokens": 512}
        bits = self.value(model) / 2
        return {"test": {"bits_per_byte": bits, "bits_per_byte_low": bits - 0.1, "bits_per_byte_high": bits + 0.1}}

    def speed(self, model: str) -> float:
        return 1000.0 + self._seed


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeded, "Scratch", Parabola)
    monkeypatch.setattr(running, "_WATCH_SECONDS", 0.005)
    for name, value in (("ran", []), ("cache", set()), ("kill_at", -1), ("fail", {})):
        monkeypatch.setattr(Parabola, name, value)


def subject(name: str = "a_tiny", rate: float = 0.01) -> Subject:
    entry = preset("gpt", n_head=2)
    entry["recipe"]["optimizer"]["lr"] = rate
    return Subject(name, name, entry, params_of(8))


def begun(folder: Path, seeds: int = 3) -> Loop:
    names = ["a_tiny", "b_tiny"]
    return Loop(folder, folder, names, Plan(2.0, range(2, 2 + seeds), dict.fromkeys(names, "code")), lambda: None)


def trained() -> list[tuple[float, int]]:
    return [(rate, seed) for stage, rate, seed in Parabola.ran if stage.startswith("train")]


def test_the_rate_is_tuned_with_the_first_seed_and_kept_for_the_others(tmp_path: Path) -> None:
    found = begun(tmp_path).run(subject())
    assert trained() == [(0.01, 2), (0.02, 2), (0.005, 2), (0.01, 3), (0.01, 4)]
    evaluated = [(rate, seed) for stage, rate, seed in Parabola.ran if stage.startswith("evaluate")]
    assert evaluated == [(0.01, 2), (0.01, 3), (0.01, 4)]
    assert (found["rate"], found["rate_at_edge"]) == (0.01, False)
    # Losses 2.02, 2.03, 2.04 nats: 1.01, 1.015, 1.02 bits, whose standard deviation is 0.005.
    assert found["bits_per_byte"] == pytest.approx(1.015)
    assert found["interval"] == pytest.approx([0.915, 1.115])
    assert found["spread"] == pytest.approx(0.005)
    assert found["by_seed"] == pytest.approx({"2": 1.01, "3": 1.015, "4": 1.02})
    assert found["valid_loss_by_rate"] == pytest.approx({"0.005": 3.02, "0.01": 2.02, "0.02": 3.02})


def test_more_rates_beyond_an_edge(tmp_path: Path) -> None:
    found = begun(tmp_path, seeds=1).run(subject(rate=0.0025))
    assert trained() == [(0.0025, 2), (0.005, 2), (0.01, 2), (0.02, 2)]
    assert (found["rate"], found["rate_at_edge"], found["spread"]) == (0.01, False, None)


def test_a_rate_beyond_its_bound_is_not_tried(tmp_path: Path) -> None:
    found = begun(tmp_path, seeds=1).run(subject(rate=0.75))  # 1.5 is more than AdamW takes
    assert [rate for rate, _ in trained()] == [0.75, 0.375, 0.1875, 0.09375, 0.04688]
    assert (found["rate"], found["rate_at_edge"]) == (0.04688, True)


def test_an_interrupted_comparison_goes_on_and_repeats_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = begun(tmp_path / "a").run(subject())
    Parabola.ran.clear()
    monkeypatch.setattr(Parabola, "kill_at", 2)  # in the third training
    with pytest.raises(KeyboardInterrupt):
        begun(tmp_path / "b").run(subject())
    monkeypatch.setattr(Parabola, "kill_at", -1)
    before = trained()
    Parabola.ran.clear()
    assert begun(tmp_path / "b").run(subject()) == whole
    assert before == [(0.01, 2), (0.02, 2)]
    assert trained() == [(0.005, 2), (0.01, 3), (0.01, 4)]
    assert [trial.number for trial in seeded.read(tmp_path / "b").values()] == [1, 2, 3, 4, 5]


def test_another_model_and_more_seeds_take_what_is_there(tmp_path: Path) -> None:
    begun(tmp_path, seeds=1).run(subject())
    Parabola.ran.clear()
    going_on = begun(tmp_path, seeds=2)
    going_on.run(subject())
    going_on.run(subject("b_tiny"))
    assert trained() == [(0.01, 3), (0.01, 2), (0.02, 2), (0.005, 2), (0.01, 3)]


def test_a_training_that_diverges_is_kept_and_another_rate_is_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Parabola, "fail", {0.01: Outcome("train@a_tiny", "failed", 2, 0.0, "too many skipped steps")})
    found = begun(tmp_path, seeds=1).run(subject())
    assert found["rate"] == 0.02
    assert found["failed"] == ["too many skipped steps"]
    every = dict.fromkeys((0.005, 0.01, 0.02), Outcome("train@a_tiny", "failed", 1, 0.0, "killed (signal 9)"))
    monkeypatch.setattr(Parabola, "fail", every)
    found = begun(tmp_path / "b", seeds=2).run(subject())
    assert (found["bits_per_byte"], found["rate"], found["rate_at_edge"]) == (None, None, False)


def test_a_failed_evaluation_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun(tmp_path, seeds=1).run(subject())
    found = {"evaluate@a_tiny": Outcome("evaluate@a_tiny", "failed", 2, 0.0, "out of memory")}
    real = Parabola.run
    monkeypatch.setattr(
        Parabola, "run", lambda self, stage, *rest, **more: found.get(stage) or real(self, stage, *rest, **more)
    )
    again = begun(tmp_path, seeds=2).run(subject())
    assert again["failed"] == ["out of memory"]
    assert again["by_seed"] == {"2": pytest.approx(1.01), "3": None}
    assert [trial.state for trial in seeded.read(tmp_path).values()] == ["complete"] * 3 + ["failed"]


def test_what_may_pass_and_what_is_a_bug_stop_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for code, error in ((75, RetryableError), (1, LexmillError)):
        monkeypatch.setattr(Parabola, "fail", {0.01: Outcome("train@a_tiny", "failed", code, 0.0, "no")})
        with pytest.raises(error, match="no"):
            begun(tmp_path).run(subject())
    assert seeded.read(tmp_path) == {}


def test_a_stop_leaves_the_training_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop_at_once(self: Parabola, stage: str, stop: Stop, listener: Any, *, force: bool) -> Outcome:
        stop.request(EXIT_INTERRUPTED)
        return Outcome(stage, "stopped", EXIT_INTERRUPTED, 0.0)

    monkeypatch.setattr(Parabola, "run", stop_at_once)
    with pytest.raises(Stopped) as raised:
        begun(tmp_path).run(subject())
    assert raised.value.code == EXIT_INTERRUPTED
    assert seeded.read(tmp_path) == {}


def test_the_speed_is_measured_once(tmp_path: Path) -> None:
    assert begun(tmp_path).calibrate(subject()) == 1002.0
    assert begun(tmp_path).calibrate(subject()) == 1002.0
    assert Parabola.ran == [("train@a_tiny", 0.01, 2)]
