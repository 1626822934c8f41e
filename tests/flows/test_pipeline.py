"""The Prefect flow mirrors the DVC graph, retries only what is worth it, and keeps the stages' exit codes."""

from __future__ import annotations

import json
import shutil
import urllib.request
from datetime import datetime
from typing import Any

import psutil
import pytest

from flows.pipeline import WAITS
from tests.support.waiting import wait_for

from .conftest import PROJECT
from .test_cancel import started

pytestmark = pytest.mark.e2e

RETRYING = """
from flows import pipeline
pipeline.RETRY_PAUSES = (0.1, 0.1)
from flows.__main__ import main
main(["run"])
"""


def last_run(workspace: Any) -> dict[str, Any]:
    return dict(workspace.runs()[0])


def test_one_task_a_stage_a_failure_keeps_its_code_and_a_rerun_takes_up_the_rest(workspace: Any) -> None:
    workspace.stage("fetch", "echo fetched it; echo 1 > fetch.out")
    workspace.stage("train", "echo 2 > train.out", ("fetch",))
    workspace.stage("broken", "echo it broke >&2; exit 2", ("fetch",))
    workspace.stage("last", "echo 3 > last.out", ("broken",))
    code, output = workspace.run()
    assert code == 2, output
    assert "it broke" in output
    assert "failed: broken; not run: last" in output
    assert "Traceback" not in output
    run = last_run(workspace)
    assert run["state_type"] == "FAILED"
    tasks = workspace.tasks(run["id"])
    assert {name: task["state_type"] for name, task in tasks.items()} == {
        "fetch": "COMPLETED",
        "train": "COMPLETED",
        "broken": "FAILED",
        "last": "PENDING",
    }
    parents = {one["id"] for one in tasks["last"]["task_inputs"]["wait_for"]}
    assert parents == {tasks["broken"]["id"]}
    logs = workspace.ask("logs", logs={"task_run_id": {"any_": [tasks["fetch"]["id"]]}})
    assert any(log["message"] == "fetched it" for log in logs)

    kept = list((workspace.root / "prefect-home/storage").glob("*"))
    workspace.stage("broken", "echo x > broken.out", ("fetch",))
    code, output = workspace.run()
    assert code == 0, output
    run = last_run(workspace)
    assert run["state_type"] == "COMPLETED"
    assert set(workspace.tasks(run["id"])) == {"broken", "last"}
    tables = workspace.ask("artifacts", artifacts={"flow_run_id": {"any_": [run["id"]]}})
    assert {table["key"] for table in tables} == {"stages", "graph"}
    # DVC is the cache: Prefect keeps no result (of a failure it keeps the exception).
    assert list((workspace.root / "prefect-home/storage").glob("*")) == kept

    (workspace.root / "last.out").unlink()
    shutil.rmtree(workspace.root / ".dvc/cache")
    code, output = workspace.run()
    assert code == 0, output
    assert {task["state_name"] for task in workspace.tasks(last_run(workspace)["id"]).values()} == {"Completed"}

    code, output = workspace.run(server=False)  # a no-op needs no server, and makes none
    assert code == 0, output
    assert "4 stages unchanged, nothing to run" in output
    assert not list(workspace.root.glob("**/prefect.db"))


def test_try_again_is_retried_and_wrong_input_is_not(workspace: Any) -> None:
    workspace.stage("fetch", "if [ -e tried ]; then echo 1 > fetch.out; else touch tried; exit 75; fi")
    workspace.stage("wrong", "echo x >> wrong-tries; exit 2")
    workspace.stage("bug", "echo x >> bug-tries; exit 1")
    code, output = workspace.run("-c", RETRYING)
    assert code == 1, output  # the gravest
    assert "fetch: trying again" in output
    tasks = workspace.tasks(last_run(workspace)["id"])
    assert (tasks["fetch"]["state_type"], tasks["fetch"]["run_count"]) == ("COMPLETED", 2)
    assert (tasks["wrong"]["state_type"], tasks["wrong"]["run_count"]) == ("FAILED", 1)
    assert (tasks["bug"]["state_type"], tasks["bug"]["run_count"]) == ("FAILED", 1)
    assert (workspace.root / "wrong-tries").read_text() == (workspace.root / "bug-tries").read_text() == "x\n"
    # The failed try counts: the page's run time is that of all spans at work.
    assert tasks["fetch"]["total_run_time"] == pytest.approx(seconds_at_work(workspace, tasks["fetch"]["id"]))
    # Of three there was room for two: the third was shown as one that waits, and began when it had its place.
    waited = {name: since for name, task in tasks.items() if (since := since_waiting(workspace, task["id"]))}
    assert waited
    for name, since in waited.items():
        assert tasks[name]["start_time"] >= since or tasks[name]["run_count"] > 1


def states_so_far(workspace: Any, task: str) -> list[dict[str, Any]]:
    """The states that a task has had, in order."""
    with urllib.request.urlopen(f"{workspace.url}/api/task_run_states/?task_run_id={task}", timeout=60) as reply:
        return sorted(json.load(reply), key=lambda one: one["timestamp"])


def since_waiting(workspace: Any, task: str) -> str:
    """When a task was first shown as waiting for its place; empty: never."""
    states = states_so_far(workspace, task)
    return min((one["timestamp"] for one in states if WAITS in (one["message"] or "")), default="")


def seconds_at_work(workspace: Any, task: str) -> float:
    """How long a task was running, by its states."""
    states = states_so_far(workspace, task)
    at = [datetime.fromisoformat(one["timestamp"]) for one in states]
    spans = zip(states, at, at[1:], strict=False)
    return sum((end - start).total_seconds() for one, start, end in spans if one["type"] == "RUNNING")


def test_errors_of_the_params_end_it_before_any_server_is_asked(workspace: Any) -> None:
    (workspace.root / "params.yaml").write_text("experiment: x\ndata_sead: 1\n")
    code, output = workspace.run(server=False)
    assert code == 2
    assert "data_sead: unknown key, did you mean 'data_seed'?" in output
    assert "training_seed: missing" in output


def test_a_second_run_learns_who_holds_the_workspace_and_a_killed_one_leaves_it_free(workspace: Any) -> None:
    """Prefect's concurrency slots can leak; the guard is a lock file that ends with its processes."""
    workspace.stage("slow", "echo $$ > pid; sleep 600")
    with workspace.start("-m", "flows", "run") as process:
        stage = started(workspace)
        code, output = workspace.run("-m", "flows", "run")
        assert code == 75, output
        assert "this workspace is in use by" in output
        assert f"(process {process.pid} on" in output
        assert "Traceback" not in output
        dead = last_run(workspace)
        assert dead["state"]["type"] == "RUNNING"
        process.kill()
    wait_for(lambda: not psutil.pid_exists(stage), "the stage outlives its run")
    workspace.stage("slow", "echo 1 > slow.out")
    code, output = workspace.run()
    assert code == 0, output
    closed = workspace.flow_run(dead["id"])
    assert closed["state"]["type"] == "CRASHED"
    assert "its process died" in closed["state"]["message"]
    assert last_run(workspace)["state"]["type"] == "COMPLETED"
    assert not (workspace.root / ".lexmill" / "flow_run.json").exists()


def test_prefect_keeps_no_deadline() -> None:
    """Its `timeout_seconds` comes late for a task that waits in a thread, and leaves the process running: ours are in
    the stages (tests/compute/test_deadline.py)."""
    from flows.pipeline import pipeline

    assert pipeline.timeout_seconds is None
    assert "timeout_seconds" not in (PROJECT / "flows/pipeline.py").read_text(encoding="utf-8")


def test_the_page_asks_the_server_that_shows_it(prefect_url: str) -> None:
    """A page told nothing asks port 4200, where another server may answer, or none."""
    with urllib.request.urlopen(f"{prefect_url}/ui-settings", timeout=60) as reply:
        assert json.load(reply)["api_url"] == "/api"
