"""What a killed dvc leaves half-written is put right by the next run, and nothing else is touched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from dvc.schema import COMPILED_LOCKFILE_SCHEMA

from lexmill.base.errors import UserError
from lexmill.runner.mending import mend_code_file, mend_lock_file, mend_rwlock

ENTRY = """  {name}:
    cmd: python -m make é "{name}"
    deps:
    - path: {name}.txt
      hash: md5
      md5: ba6061a5633df8e66e9a86027905ab6c
      size: 77421
    params:
      params.yaml:
        '{name}':
          text: a long sentence that the writer of YAML folds at some place since a line may not be so
            long, followed by nothing
    outs:
    - path: out/{name}
      hash: md5
      md5: a6797d8454eadc82de2f8156071d1cd2.dir
      size: 1113
      nfiles: 3
"""
NAMES = ("one", "two@a", "two@b")
WHOLE = "schema: '2.0'\nstages:\n" + "".join(ENTRY.format(name=name) for name in NAMES)


def stages(data: bytes) -> dict[str, Any]:
    found: dict[str, Any] = COMPILED_LOCKFILE_SCHEMA(yaml.safe_load(data)).get("stages", {})
    return found


def test_a_lock_file_cut_anywhere_keeps_its_whole_stages(tmp_path: Path) -> None:
    path, whole = tmp_path / "dvc.lock", WHOLE.encode()
    every = stages(whole)
    begins = [whole.index(f"  {name}:\n".encode()) for name in NAMES[1:]]
    ends = {at + near for at, byte in enumerate(whole) if byte == 0x0A for near in (0, 1, 4)}
    for cut in sorted(one for one in {*range(0, len(whole), 13), *ends} if one < len(whole)):
        path.write_bytes(whole[:cut])
        mended = mend_lock_file(path)
        sure = sum(cut > begin + 2 for begin in begins)  # the stages before the last that was begun
        if not path.exists():
            assert sure == 0
            continue
        found = stages(path.read_bytes())
        assert list(found)[:sure] == list(NAMES[:sure])
        assert all(found[name] == every[name] for name in NAMES[:sure])
        if mended:
            assert len(found) == sure
        else:  # cut after a line: no value is cut, and DVC finds what is missing
            assert path.read_bytes() == whole[:cut]
            assert whole[:cut].endswith(b"\n")
    assert not mend_lock_file(tmp_path / "none")


def test_what_is_no_cut_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "dvc.lock"
    conflict = WHOLE.replace("  two@b:", "<<<<<<< HEAD\n=======\n>>>>>>> other\n  two@b:")
    for text in (WHOLE, conflict, WHOLE.replace("hash: md5", "hash: [", 1)):
        path.write_text(text, encoding="utf-8")
        assert not mend_lock_file(path)
        assert path.read_text(encoding="utf-8") == text


def test_a_run_goes_on_from_half_a_lock_file(project: Any) -> None:
    for name in ("one", "two"):
        project.stage(name, f"open('ran', 'a').write('{name} '); write('x')", ("one",) if name == "two" else ())
    assert project.run().code == 0
    lock = project.root / "dvc.lock"
    whole = lock.read_text()
    for cut in (whole.index("  two:") + 20, whole.index("  one:") + 12, 0):
        lock.write_text(whole[:cut])
        assert project.run().code == 0
        assert yaml.safe_load(lock.read_text()) == yaml.safe_load(whole)
    assert (project.root / "ran").read_text() == "one two "  # what was lost came from the run cache


def test_a_broken_lock_file_is_reported(project: Any) -> None:
    project.stage("one", "write('x')")
    project.stage("two", "write('x')")
    assert project.run().code == 0
    lock = project.root / "dvc.lock"
    lock.write_text(lock.read_text().replace("outs:", "outs: [", 1))
    with pytest.raises(UserError, match=r"dvc\.lock"):
        project.run()


def test_paths_held_by_what_is_gone_are_let_go(project: Any, spawn: Callable[..., subprocess.Popen[str]]) -> None:
    """DVC would wait for a living process that has got the id of a killed dvc."""
    project.stage("one", "write('1')")
    project.run()
    held, words = project.root / ".dvc" / "tmp" / "rwlock", ["-c", "import time; time.sleep(600)", "repro"]
    alive = spawn([sys.executable, *words])
    ended = spawn([sys.executable, "-c", ""])
    ended.wait()
    other = {"pid": os.getpid(), "cmd": "dvc repro -s one"}
    dvc = {"pid": alive.pid, "cmd": "/some where/dvc repro"}
    dead = {"pid": ended.pid, "cmd": "dvc repro"}
    entries = {"write": {"/a": other, "/b": dvc, "/c": dead}, "read": {"/d": [dead, dvc], "/e": [other]}}
    held.write_text(json.dumps(entries))
    mend_rwlock(held.parent)
    assert json.loads(held.read_text()) == {"write": {"/b": dvc}, "read": {"/d": [dvc]}}

    held.write_text(json.dumps({"write": {str(project.root / "one.out"): other}, "read": {}}))
    project.stage("one", "write('2')")
    assert project.run().code == 0
    assert project.text("one") == "2"


def test_half_a_file_of_held_paths_is_removed(project: Any) -> None:
    project.stage("one", "write('1')")
    (project.root / ".dvc" / "tmp").mkdir(exist_ok=True)
    (project.root / ".dvc" / "tmp" / "rwlock").write_text('{"write": {"/a')
    assert project.run().code == 0


CONFLICT = b'<<<<<<< HEAD\n{"a": "1"}\n=======\n{"a": "2"}\n>>>>>>> b\n'


@pytest.mark.parametrize("data", [b"", b"{", b'{"fetch": "0', b"\xff\xfe", b"[]", CONFLICT])
def test_a_code_file_that_cannot_be_read_is_left_to_its_stage(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "code.json"
    path.write_bytes(data)
    assert mend_code_file(path)
    assert not path.exists()
    assert not mend_code_file(path)
    path.write_text('{"fetch": "0"}')
    assert not mend_code_file(path)
    assert path.read_text() == '{"fetch": "0"}'
