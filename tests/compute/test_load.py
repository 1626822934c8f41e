"""The hint that other programs hold the cores: when it is given, and whose processes count."""

import os
from pathlib import Path

import pytest

from lexmill.compute import load
from lexmill.compute.load import Others, Process, Sample, compared, hint, our_processes
from lexmill.stages import entry

SETTINGS = Path("conf/execution/local.yaml")


def hinted(monkeypatch: pytest.MonkeyPatch, threads: int, others: Others | None) -> str:
    monkeypatch.setattr(load, "measured", lambda: others)
    return hint(threads, SETTINGS)


def test_the_hint_names_what_is_busy_and_the_threads_that_leave_cores_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    programs = (("ffmpeg", 3.1), ("cc1", 1.0), ("a\x1b", 0.5), ("bash", 0.4))
    assert hinted(monkeypatch, 8, Others(5.04, 8, programs)) == (
        "other programs keep 5.0 of 8 cores busy (ffmpeg 3.1, cc1 1.0, a\\x1b 0.5), which can make this many times"
        " slower; `threads: 3` in conf/execution/local.yaml leaves them their cores"
    )


@pytest.mark.parametrize(
    ("threads", "others", "advised"),
    [
        (2, None, 0),
        (2, Others(0.5, 2), 0),
        (2, Others(1.0, 2), 1),
        (2, Others(2.3, 2), 1),  # the sample is coarse
        (1, Others(2.0, 2), 0),  # nothing fewer to advise
        (64, Others(3.0, 64), 0),
        (64, Others(16.0, 64), 48),
        (48, Others(16.0, 64), 0),
    ],
)
def test_the_hint_comes_where_threads_and_other_programs_need_more_cores_than_there_are(
    monkeypatch: pytest.MonkeyPatch, threads: int, others: Others | None, advised: int
) -> None:
    said = hinted(monkeypatch, threads, others)
    assert (f"`threads: {advised}`" in said) == (said != "") == (advised > 0)


PROCESSES = {
    1: Process("init", 0, 0.0),
    10: Process("bash", 1, 0.0),  # the terminal's
    11: Process("lexmill", 10, 0.0),
    12: Process("dvc", 11, 0.0),
    13: Process("sh", 12, 0.0),
    14: Process("python3.11", 13, 0.0),  # this stage
    15: Process("python3.11", 12, 0.0),  # beside it
    16: Process("worker", 15, 0.0),
    20: Process("python3.11", 10, 0.0),  # another training in the same terminal
    30: Process("sh", 1, 0.0),
}


def test_our_processes_are_the_commands_that_started_this_one_and_all_that_they_started() -> None:
    assert our_processes(PROCESSES, 14, lambda shell: shell == 13) == {11, 12, 13, 14, 15, 16}
    assert our_processes(PROCESSES, 20, lambda shell: False) == {20}
    assert our_processes({}, 5, lambda shell: False) == {5}


def test_what_our_own_processes_use_does_not_count() -> None:
    later = {
        number: Process(one.name, one.parent, 0.04 * (number in (15, 16, 20))) for number, one in PROCESSES.items()
    }
    later[40] = Process("new", 1, 5.0)  # its time before the sample is not known
    others = compared(Sample(100.0, PROCESSES), Sample(100.16, later), 0.04, 8, {14, 15, 16})
    assert others.busy == pytest.approx(2.0)  # 20, and one that this container cannot see
    assert others.programs == (("python3.11", pytest.approx(1.0)),)


def test_a_machine_at_rest_costs_no_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (0.2, 0.0, 0.0))
    monkeypatch.setattr(load.time, "sleep", lambda seconds: pytest.fail("slept"))
    assert load.measured() is None


def test_a_busy_machine_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (99.0, 0.0, 0.0))
    found = load.measured()
    assert found is None if not Path("/proc/stat").exists() else found is not None and found.seen >= 1


@pytest.mark.parametrize(
    ("stage", "settings", "threads"),
    [
        ("train@gpt", "threads: 3\ndevices: 2\nstrategy: ddp\n", 3),
        ("train@gpt", "threads: 0\n", 7),
        ("train@gpt", "accelerator: cuda\n", None),
        ("evaluate@gpt", "threads: 3\n", None),
    ],
)
def test_a_training_on_the_cpu_gives_the_hint_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str, settings: str, threads: int | None
) -> None:
    (tmp_path / "here.yaml").write_text(settings, encoding="utf-8")
    monkeypatch.setenv("LEXMILL_EXECUTION", str(tmp_path / "here.yaml"))
    monkeypatch.setattr(entry, "cores", lambda: 7)
    asked: list[int] = []
    said: list[str] = []
    monkeypatch.setattr(entry, "hint", lambda threads, path: asked.append(threads) or "busy")
    monkeypatch.setattr(entry.progress, "say", said.append)
    found = entry.execution.load_execution()
    entry._advise(entry.place_of(stage, found), found)
    assert asked == ([] if threads is None else [threads])
    assert said == ["busy"] * len(asked)
