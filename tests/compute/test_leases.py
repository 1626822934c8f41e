"""GPUs and cores leased one by one: nobody shares one, who is killed gives it back, whoever needs several gets them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lexmill.base.errors import UserError
from lexmill.compute import leases
from lexmill.compute.execution import Execution
from lexmill.compute.place import Place, place_of
from lexmill.compute.settings import StageSettings

HOLD = """
import os, sys, time
from lexmill.compute import leases
from lexmill.compute.place import Place
place = Place("train@x", "local", int(sys.argv[2]), int(sys.argv[3]), 0, 0, 1, 1)
with leases.leased(place, sys.argv[1], lambda text: print("waits", text, flush=True)):
    print("has", os.environ.get("CUDA_VISIBLE_DEVICES"), sorted(os.sched_getaffinity(0)), flush=True)
    sys.stdin.read()
"""


def place(gpus: int = 0, cpus: int = 0) -> Place:
    return place_of("train@x", Execution(stages={"default": StageSettings(gpus=gpus, cpus=cpus)}))


class Holder:
    """A process that holds what it leased until told to end."""

    def __init__(self, folder: Path, gpus: int, cpus: int = 0) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(folder), str(gpus), str(cpus)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self) -> None:
        self.process.communicate()


@pytest.fixture
def holders() -> Iterator[list[Holder]]:
    started: list[Holder] = []
    yield started
    for one in started:
        one.process.kill()
        one.process.communicate()


@pytest.fixture(autouse=True)
def _three(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,GPU-a-b")


def gpu_of(line: str) -> str:
    return line.split()[1]


def test_each_gets_its_own_and_a_killed_holder_gives_it_back(tmp_path: Path, holders: list[Holder]) -> None:
    holders += [Holder(tmp_path / "leases", 1) for _ in range(3)]
    got = [gpu_of(holder.line()) for holder in holders]
    assert sorted(got) == ["0", "1", "GPU-a-b"]
    holders.append(Holder(tmp_path / "leases", 1))
    assert holders[3].line() == "waits waiting for 1 GPU: 0 of 3 free"
    os.kill(holders[1].process.pid, signal.SIGKILL)
    assert gpu_of(holders[3].line()) == got[1]


def test_who_waits_for_several_is_not_passed_by_those_that_need_one(tmp_path: Path, holders: list[Holder]) -> None:
    folder = tmp_path / "leases"
    holders += [Holder(folder, 1), Holder(folder, 1)]
    for holder in holders:
        holder.line()
    holders.append(Holder(folder, 2))
    assert holders[2].line() == "waits waiting for 2 GPUs: 1 of 3 free"
    holders.append(Holder(folder, 1))
    holders[0].end()
    assert len(gpu_of(holders[2].line()).split(",")) == 2  # and not the one that came later
    holders[1].end()
    assert len(gpu_of(holders[3].line()).split(",")) == 1


def test_a_stage_sees_its_own_alone_and_everything_afterwards(tmp_path: Path) -> None:
    with leases.leased(place(gpus=2), tmp_path / "leases", pytest.fail):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1,GPU-a-b"
    assert (tmp_path / "leases").stat().st_mode & 0o1777 == 0o1777


def test_more_than_there_are_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        pytest.raises(UserError, match="train@x: gpus: 4 are asked for, but this machine has 3 to give"),
        leases.leased(place(gpus=4), tmp_path, pytest.fail),
    ):
        pass
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert leases.gpu_names() == []
    cores = len(os.sched_getaffinity(0))
    with (
        pytest.raises(UserError, match=f"cpus: {cores + 1} are asked for, but this machine has {cores} to give"),
        leases.leased(place(cpus=cores + 1), tmp_path, pytest.fail),
    ):
        pass


def test_cores_are_leased_too(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    if len(before) < 2:
        pytest.skip("one core")
    with leases.leased(place(cpus=1), tmp_path, pytest.fail):
        first = os.sched_getaffinity(0)
        assert len(first) == 1
        os.sched_setaffinity(0, before)
        with leases.leased(place(cpus=1), tmp_path, pytest.fail):
            assert os.sched_getaffinity(0).isdisjoint(first)
    assert os.sched_getaffinity(0) == before


def test_nobody_leads_a_lock_elsewhere(tmp_path: Path) -> None:
    folder = tmp_path / "leases"
    folder.mkdir()
    (folder / "gpu-0").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="symbolic links"), leases.leased(place(gpus=1), folder, pytest.fail):
        pass
    assert not (tmp_path / "victim").exists()


def test_a_lease_is_one_of_threads_too(tmp_path: Path) -> None:
    """Several threads of one process do not share a GPU either."""
    seen: list[str] = []
    inside, out = threading.Barrier(3), threading.Event()

    def work() -> None:
        with leases._several("gpu", leases.gpu_names(), 1, tmp_path / "leases", lambda _: None) as names:
            seen.extend(names)
            inside.wait(60)
            out.wait(60)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    inside.wait(60)
    out.set()
    for thread in threads:
        thread.join()
    assert len(set(seen)) == 2


def test_without_a_gpu_what_asks_for_cuda_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setenv("PATH", str(tmp_path))  # no nvidia-smi
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert leases.gpu_names() == ["0", "1"]
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    training = place_of("train@x", Execution(accelerator="cuda"))
    with (
        pytest.raises(UserError, match="this machine has 0 to give; without GPUs choose accelerator cpu"),
        leases.leased(training, tmp_path, pytest.fail),
    ):
        pass
