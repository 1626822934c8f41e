"""Writing so that a kill leaves the old state or the new one."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lexmill.base import storage


def test_json_is_canonical(tmp_path: Path) -> None:
    storage.write_json(tmp_path / "a.json", {"b": 1, "a": "é"})
    assert (tmp_path / "a.json").read_bytes() == '{\n  "a": "é",\n  "b": 1\n}\n'.encode()
    with pytest.raises(ValueError, match="not JSON compliant"):
        storage.write_json(tmp_path / "a.json", float("nan"))
    assert storage.read_json(tmp_path / "a.json") == {"a": "é", "b": 1}


def test_hashes(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abc")
    assert (
        storage.sha256_file(tmp_path / "x")
        == storage.sha256_bytes(b"abc")
        == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    )
    before = storage.sha256_folder(tmp_path)
    (tmp_path / "x").rename(tmp_path / "y")
    assert storage.sha256_folder(tmp_path) != before
    assert storage.fingerprint({"a": 1, "b": 2}) == storage.fingerprint({"b": 2, "a": 1})


def test_a_new_folder_replaces_the_old_one_whole(tmp_path: Path) -> None:
    target = tmp_path / "out"
    for content in ("one", "two"):
        with storage.new_folder(target) as folder:
            (folder / content).write_text(content)
    assert [path.name for path in target.iterdir()] == ["two"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_failure_leaves_the_old_folder_and_nothing_beside_it(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with storage.new_folder(target) as folder:
        (folder / "old").write_text("old")
    with pytest.raises(RuntimeError, match="half way"), storage.new_folder(target) as folder:
        (folder / "new").write_text("new")
        raise RuntimeError("half way")
    assert [path.name for path in target.iterdir()] == ["old"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_a_killed_writer_left_is_removed(tmp_path: Path) -> None:
    target = tmp_path / "out"
    code = (
        "import sys, os, signal\nfrom lexmill.base.storage import new_folder\n"
        "with new_folder(sys.argv[1]) as folder:\n"
        "    (folder / 'half').write_text('x')\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(target)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert not target.exists()
    assert len(os.listdir(tmp_path)) == 1
    with storage.new_folder(target) as folder:
        (folder / "whole").write_text("x")
    assert os.listdir(tmp_path) == ["out"]


def test_what_a_killed_writer_of_a_file_left_is_removed_and_nobody_elses(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    names = {"dead": f".a.json.{ended.pid}.tmp", "alive": f".a.json.{os.getppid()}.tmp", "other": ".a.json.b.1.tmp"}
    for name in names.values():
        (tmp_path / name).write_text("half")
    storage.write_text(tmp_path / "a.json", "whole")
    assert set(os.listdir(tmp_path)) == {"a.json", names["alive"], names["other"]}


def test_a_folder_being_written_is_left_alone_by_the_writer_of_one_whose_name_begins_the_same(tmp_path: Path) -> None:
    with storage.new_folder(tmp_path / "gpt.two") as first, storage.new_folder(tmp_path / "gpt"):
        assert first.is_dir()
    assert set(os.listdir(tmp_path)) == {"gpt", "gpt.two"}
