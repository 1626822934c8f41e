"""Cores and threads: as many as a container's CPU limit pays for, or as the settings say."""

from pathlib import Path

import pytest
import torch

from lexmill.compute import cores as module
from lexmill.compute.cores import cores, cpu_quota, set_torch_threads
from lexmill.compute.execution import Execution


def made(tmp_path: Path, own: str, files: dict[str, str]) -> Path:
    """Write a file of a process's groups, and files of quotas; return the first."""
    for name, text in files.items():
        path = tmp_path / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (tmp_path / "own").write_text(own, encoding="utf-8")
    return tmp_path / "own"


@pytest.mark.parametrize(
    ("own", "files", "quota"),
    [
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 1.5),
        ("0::/\n", {"cpu.max": "max 100000\n"}, None),
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "400000 100000\n"}, 4.0),
        ("0::/a/b\n", {"a/b/cpu.max": "200000 100000\n", "a/cpu.max": "400000 100000\n"}, 2.0),
        ("4:cpu,cpuacct:/a\n", {"cpu/a/cpu.cfs_quota_us": "50000\n", "cpu/a/cpu.cfs_period_us": "100000\n"}, 0.5),
        ("1:cpu:/not/seen\n", {"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3.0),
        ("1:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ("3:cpuset:/\n", {"cpu.max": "100000 100000\n"}, None),
        ("0::/\n", {"cpu.max": "odd\n"}, None),
    ],
)
def test_the_quota_is_the_least_of_the_groups_of_a_process(
    tmp_path: Path, own: str, files: dict[str, str], quota: float | None
) -> None:
    assert cpu_quota(tmp_path / "groups", made(tmp_path, own, files)) == quota


def test_without_cgroups_there_is_no_quota(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path, tmp_path / "missing") is None


@pytest.mark.parametrize(("quota", "threads"), [(None, 6), (0.2, 1), (1.5, 2), (4.0, 4), (64.0, 6)])
def test_threads_follow_the_quota_and_the_settings_go_before(
    monkeypatch: pytest.MonkeyPatch, quota: float | None, threads: int
) -> None:
    monkeypatch.setattr(module, "visible_cores", lambda: list(range(6)))
    monkeypatch.setattr(module, "cpu_quota", lambda *_: quota)
    asked: list[int] = []
    monkeypatch.setattr(torch, "get_num_threads", lambda: 6)
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    assert cores() == threads
    assert set_torch_threads(Execution()) == threads
    assert asked == ([] if threads == 6 else [threads])
    assert set_torch_threads(Execution(threads=5)) == 5
    assert asked[-1] == 5
