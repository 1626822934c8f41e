"""What a person sees: nothing for short work, a line every ten seconds, records under the runner."""

from __future__ import annotations

import json

import pytest

from lexmill.base import progress


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    for name in ("LEXMILL_PROGRESS", "LOCAL_RANK", "NODE_RANK"):
        monkeypatch.delenv(name, raising=False)
    return clock


def test_short_work_says_nothing(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with progress.bar("count", 1000) as bar:
        for _ in range(1000):
            bar.update()
    assert capsys.readouterr().err == ""


def test_long_work_says_a_line_every_ten_seconds_and_one_at_its_end(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress.bar("train gpt", 100) as bar:
        for _ in range(100):
            clock.now += 0.25
            bar.update(loss=3.21)
    assert capsys.readouterr().err.splitlines() == [
        "train gpt: 40/100 (40%), loss 3.21, 10.0 s, 15.0 s left",
        "train gpt: 80/100 (80%), loss 3.21, 20.0 s, 5.0 s left",
        "train gpt: 100/100 (100%), loss 3.21, 25.0 s",
    ]


def test_what_the_runner_passes_on_has_no_name_and_no_gap() -> None:
    assert progress.line_text("gpt", 1, 2, progress.shown_text({"": "loss 3.6"}), 1.0).startswith(
        "gpt: 1/2 (50%), loss"
    )


def test_the_end_is_said_once(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with progress.bar("train gpt", 20) as bar:
        clock.now += 10.8
        bar.update(20, loss=3.6)
    assert capsys.readouterr().err.splitlines() == ["train gpt: 20/20 (100%), loss 3.6, 10.8 s"]


def test_records_come_at_most_four_times_a_second(
    clock: Clock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEXMILL_PROGRESS", "records")
    with progress.bar("count", 1000) as bar:
        for _ in range(1000):
            clock.now += 0.001
            bar.update()
    progress.say("done\nit is")
    lines = capsys.readouterr().err.rstrip("\n").split("\n")
    records = [json.loads(line.removeprefix(progress.RECORD_MARK)) for line in lines]
    assert 5 <= len(records) <= 7
    assert records[0]["done"] == 0
    assert records[-2]["done"] == 1000
    assert records[-2]["closed"]
    assert records[-1] == {"say": "done\nit is"}


@pytest.mark.parametrize("rank", ["LOCAL_RANK", "NODE_RANK"])
def test_other_ranks_are_silent(
    rank: str, clock: Clock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(rank, "1")
    with progress.bar("count", 10) as bar:
        clock.now += 60
        bar.update(10)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("seconds", "text"), [(0.04, "0.0 s"), (59.94, "59.9 s"), (65, "1:05"), (3723, "1:02:03")])
def test_seconds(seconds: float, text: str) -> None:
    assert progress.seconds_text(seconds) == text


def test_a_bar_on_a_terminal_closes_after_an_error(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.undo()  # the clock must be real for the drawing thread
    with pytest.raises(ValueError, match="oh"), progress.bar("outer", None), progress.bar("inner", 3) as bar:
        bar.update(2, loss=1.5)
        raise ValueError("oh")
    assert progress._terminal._live is None
