"""What a run leaves on disk of itself: whole at every moment, closed by the next one after a kill."""

from __future__ import annotations

import datetime
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from lexmill.base import checkout, storage, workspace
from lexmill.base.errors import EXIT_TERMINATED
from lexmill.runner import recorded
from lexmill.runner.graph import Plan, Stage
from lexmill.runner.record import RunRecord, records, unfinished
from lexmill.runner.session import open_session, run_all
from lexmill.runner.supervised import Outcome

PLAN = Plan((Stage("one", (), ("input one.py modified",)), Stage("other", (), ())))


def started(root: Path, token: str = "0123456789abcdef") -> RunRecord:
    return RunRecord.start(root, token, "lexmill run", "run", PLAN, experiment="tiny")


def only(root: Path) -> RunRecord:
    (record,) = records(root)
    return record


def test_a_run_is_recorded_stage_by_stage(project: Any) -> None:
    project.stage("one", "write('1')")
    project.stage("two", "import sys; sys.exit('the sky fell')", ("one",))
    project.stage("three", "write('3')", ("two",))
    make = "mkdir -p metrics/made && echo '{\"count\": 7}' > metrics/made/${item}.json && echo 4 > ${item}"
    project.stages["made"] = {"foreach": ["x"], "do": {"cmd": make, "outs": ["${item}"]}}
    project.save()
    with open_session(root=project.root, experiment="tiny") as session:
        run_all(session)
    record = only(project.root)
    assert (record.code, record.door, record.experiment) == (1, "run", "tiny")
    assert record.token == session.lock.token
    assert record.planned == ["made@x", "one", "two", "three"]
    assert record.ended is not None
    stages = {stage.name: stage for stage in record.stages}
    assert {name: (stage.state, stage.code) for name, stage in stages.items()} == {
        "made@x": ("ran", 0),
        "one": ("ran", 0),
        "two": ("failed", 1),
    }
    assert stages["made@x"].metrics == {"count": 7}
    assert "the sky fell" in stages["two"].message
    assert "follows one" in stages["two"].why
    assert [(one["path"], len(one["md5"])) for one in stages["one"].inputs] == [("one.py", 32)]
    assert record.dvc_lock == checkout.dvc_lock_digest(project.root) is not None
    first = stages["one"].fingerprint
    assert first
    assert stages["two"].fingerprint == ""

    project.stage("two", "write('2')", ("one",))
    project.run()
    second = records(project.root)[-1]
    assert second.code == 0
    assert second.unchanged["one"] == first  # it is found again by this
    project.run()
    assert len(records(project.root)) == 2  # nothing to do, nothing to record


def test_a_change_of_code_or_params_is_another_fingerprint(tmp_path: Path) -> None:
    def lock(md5: str, value: Any) -> None:
        entry = {
            "cmd": "x",
            "deps": [{"path": "a", "hash": "md5", "md5": md5, "size": 1}],
            "params": {"p": {"v": value}},
        }
        text = yaml.safe_dump({"schema": "2.0", "stages": {"s@a": entry, "s@b": {"cmd": "y"}}}, sort_keys=False)
        (tmp_path / "dvc.lock").write_text(text, encoding="utf-8")

    found = []
    for md5, value in (("1", 1), ("2", 1), ("2", 2), ("2", "2026-01-02"), ("1", 1)):
        lock(md5, value)
        found.append(recorded.read(tmp_path, "s@a").fingerprint)
    assert found[0] == found[4]
    assert len(set(found)) == 4
    assert recorded.read(tmp_path, "s@b").inputs == []
    assert recorded.read(tmp_path, "s@c") == recorded.Entry()
    assert recorded.read(tmp_path, "elsewhere/dvc.yaml:s") == recorded.Entry()


def test_equal_states_have_one_hash_whatever_was_done_first(tmp_path: Path) -> None:
    """DVC writes the stages into dvc.lock in the order in which they were done."""

    def digest(**md5: str) -> str | None:
        params = {"params.yaml": {"since": datetime.date(2026, 1, 2), 3: 1.5}}  # neither is JSON
        made = {name: {"cmd": name, "params": params, "outs": [{"path": name, "md5": md5[name]}]} for name in md5}
        text = yaml.safe_dump({"schema": "2.0", "stages": made}, sort_keys=False)
        (tmp_path / "dvc.lock").write_text(text, encoding="utf-8")
        raw.add(storage.sha256_file(tmp_path / "dvc.lock"))
        return checkout.dvc_lock_digest(tmp_path)

    raw: set[str] = set()
    assert checkout.dvc_lock_digest(tmp_path) is None
    first = digest(one="1", two="2")
    assert first == digest(two="2", one="1")
    assert len(raw) == 2
    assert len({first, digest(one="2", two="1"), digest(one="1"), digest()}) == 4
    (tmp_path / "dvc.lock").write_text("stages:\n  one: {cmd: x", encoding="utf-8")  # a killed dvc's
    assert checkout.dvc_lock_digest(tmp_path) is None


def test_another_dvc_that_writes_the_lock_file_just_now_is_waited_for(tmp_path: Path) -> None:
    """It writes in place: the entry is there, or cut, or not there yet."""
    path = tmp_path / "dvc.lock"
    text = yaml.safe_dump({"stages": {"a": {"cmd": "x"}, "b": {"cmd": "y", "deps": [{"path": "p", "md5": "q"}]}}})
    path.write_text(text, encoding="utf-8")
    whole = recorded.read(tmp_path, "b")
    assert whole.inputs == [{"path": "p", "md5": "q"}]
    path.write_text(text[:-8], encoding="utf-8")
    writer = threading.Timer(0.2, lambda: path.write_text(text, encoding="utf-8"))
    writer.start()
    try:
        assert recorded.read(tmp_path, "b") == whole
    finally:
        writer.join()


def test_a_killed_run_is_closed_by_the_next(project: Any, spawn: Callable[..., subprocess.Popen[str]]) -> None:
    project.stage("slow", "import time; print('here', flush=True); time.sleep(120)")
    code = "from lexmill.runner.session import *\nwith open_session() as s: run_all(s)"
    process = spawn([sys.executable, "-c", code], cwd=project.root, stderr=subprocess.DEVNULL, start_new_session=True)
    log = workspace.log_path("slow", project.root)
    while not log.exists() or "here" not in log.read_text():
        assert process.poll() is None
    assert unfinished(project.root) == []
    process.send_signal(signal.SIGKILL)
    process.wait()
    (killed,) = unfinished(project.root)
    assert [(stage.name, stage.state) for stage in killed.stages] == [("slow", "running")]
    with workspace.run_lock(root=project.root, wait_seconds=60):
        pass  # on a busy machine its tree takes longer to end than the next run waits for it
    project.stage("slow", "write('done')")
    project.run()
    first, second = records(project.root)
    assert (first.code, first.stages[0].state) == (None, "killed")
    assert first.ended is not None
    assert (second.code, second.stages[0].state) == (0, "ran")
    assert unfinished(project.root) == []


def test_a_stopped_run_says_so(project: Any) -> None:
    project.stage("one", "write('1')")
    with pytest.raises(RuntimeError), open_session(root=project.root) as session:
        session.run("one")
        raise RuntimeError("the flow was cancelled")
    record = only(project.root)
    assert (record.code, record.stages[0].state) == (EXIT_TERMINATED, "ran")


def test_each_change_is_written_whole_and_trials_are_counted(tmp_path: Path) -> None:
    record = started(tmp_path)
    assert json.loads(record.path.read_text(encoding="utf-8"))["ended"] is None
    for state, code in (("failed", 75), ("ran", 0)):
        record.begin("one", "input one.py modified")
        assert only(tmp_path).stages[0].state == "running"
        record.stage(Outcome("one", state, code, 1.5))  # type: ignore[arg-type]
    (stage,) = only(tmp_path).stages
    assert (stage.state, stage.tries, stage.seconds, stage.why) == ("ran", 2, 1.5, "input one.py modified")
    record.end(0)
    ended = only(tmp_path).ended
    record.end(1)
    assert (only(tmp_path).code, only(tmp_path).ended) == (0, ended)
    assert (only(tmp_path).pid, only(tmp_path).unchanged) == (os.getpid(), {"other": ""})


def test_a_run_on_another_machine_counts_as_alive_while_it_holds_the_workspace(tmp_path: Path) -> None:
    with workspace.run_lock(root=tmp_path) as lock:
        record = started(tmp_path, lock.token)
        text = record.path.read_text(encoding="utf-8").replace(record.host, "elsewhere")
        record.path.write_text(text, encoding="utf-8")
        assert unfinished(tmp_path) == []
    assert [one.token for one in unfinished(tmp_path)] == [lock.token]


def test_a_killed_run_lasted_to_its_last_sign_of_life(tmp_path: Path) -> None:
    record = started(tmp_path)
    record.begin("train@gpt")
    begun = record.path.stat().st_mtime
    for path, late in (
        (workspace.log_path("train@gpt", tmp_path), 5),
        (tmp_path / ".lexmill/metrics/train-gpt.jsonl", 90),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (begun + late, begun + late))
    record.end(None)
    assert only(tmp_path).stages[0].seconds == pytest.approx(90, abs=2)
    assert only(tmp_path).ended != only(tmp_path).started


def test_what_is_no_record_is_passed_over(tmp_path: Path) -> None:
    record = started(tmp_path)
    shutil.copy(record.path, record.path.with_name("20250101T000000Z-00000000.json"))
    record.path.write_text("{", encoding="utf-8")
    record.path.with_name("20270101T000000Z-00000000.json").write_text("[]", encoding="utf-8")
    assert [one.token for one in records(tmp_path)] == [record.token]
