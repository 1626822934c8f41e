"""What is seen of the machine while it trains: metrics by the clock, no process left, no step that waits."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from lexmill.training import watching
from lexmill.training.system import System, gpu_metrics

from .test_speed import Clock
from .test_watching import read, step, watch_of

TWO = "0, GPU-aaaa, 37, 1024, 4096, 80.5\n1, GPU-bbbb, [N/A], 2048, 4096, [N/A]\n"


def smi(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """A program of that name, first on the path."""
    program = folder / "nvidia-smi"
    program.write_text(f"#!{sys.executable}\nimport sys, time\n{body}\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)


def wait_for(machine: System) -> None:
    asked = machine._gpus._asked
    assert asked is not None
    asked.wait(60)


def test_this_machine() -> None:
    machine = System()
    metrics = machine.sample()
    assert 0 <= metrics["cpu_utilization_percentage"] <= 100
    assert 0 < metrics["system_memory_usage_percentage"] <= 100
    assert metrics["process_memory_usage_megabytes"] > 10
    assert metrics["disk_available_megabytes"] > 0
    machine.close()


def test_gpus_are_those_that_this_process_may_use() -> None:
    zero = {
        "gpu_0_utilization_percentage": 37,
        "gpu_0_memory_usage_megabytes": 1024,
        "gpu_0_power_usage_watts": 80.5,
        "gpu_0_memory_usage_percentage": 25,
    }
    one = {"gpu_1_memory_usage_megabytes": 2048, "gpu_1_memory_usage_percentage": 50}  # a slice tells no more
    assert gpu_metrics(TWO, None) == {**zero, **one}
    assert gpu_metrics(TWO, "1") == gpu_metrics(TWO, "GPU-bb") == one
    assert gpu_metrics(TWO, "1, 0") == {**zero, **one}
    assert gpu_metrics(TWO, "") == {}
    assert gpu_metrics("No devices were found\n", None) == {}


def test_an_answer_is_taken_up_at_the_next_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smi(tmp_path, monkeypatch, f"sys.stdout.write({TWO!r})")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    machine = System()
    for _ in range(2):
        wait_for(machine)
        assert machine.sample()["gpu_0_utilization_percentage"] == 37
    machine.close()


def test_one_that_hangs_holds_nothing_and_is_not_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smi(tmp_path, monkeypatch, "time.sleep(600)")
    machine = System()
    asked = machine._gpus._asked
    assert asked is not None
    assert not [key for key in machine.sample() if key.startswith("gpu")]
    assert machine._gpus._asked is asked  # it is asked once
    machine.close()
    assert asked.returncode is not None


def test_one_without_a_driver_is_not_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smi(tmp_path, monkeypatch, "sys.exit(9)")
    machine = System()
    wait_for(machine)
    assert not [key for key in machine.sample() if key.startswith("gpu")]
    assert machine._gpus._asked is None


def test_a_training_machine_without_psutil_and_gpus_has_no_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psutil", None)
    monkeypatch.setenv("PATH", "")
    machine = System()
    assert machine.sample() == {}
    machine.close()


def test_looks_come_by_the_clock_and_take_a_share_of_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()

    class Slow:
        def sample(self) -> dict[str, float]:
            clock.now += 1
            return {"cpu_utilization_percentage": 50.0}

        def close(self) -> None: ...

    monkeypatch.setattr(watching, "System", Slow)
    with watch_of(tmp_path, clock, system_seconds=10.0) as watch:
        watch.start(0, "tiny-1")
        for number in range(1, 1001):
            step(watch, clock, number)
    looks = read(tmp_path, "system")
    assert [line["step"] for line in looks] == [10, 399, 798]  # a quarter of a percent at most
    assert looks[0]["cpu_utilization_percentage"] == 50.0
    assert [line["tokens_per_second"] for line in read(tmp_path, "live")][5] == pytest.approx(100)  # no part of a step


def test_without_an_interval_nobody_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never() -> None:
        raise AssertionError("somebody looked")

    monkeypatch.setattr(watching, "System", never)
    clock = Clock()
    with watch_of(tmp_path, clock) as watch:
        watch.start(0, "tiny-1")
        step(watch, clock, 1, seconds=100)
    assert read(tmp_path, "system") == []
