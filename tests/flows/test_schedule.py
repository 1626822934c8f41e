"""The flow on a schedule: when it runs, that it really does, what an event starts, how it ends; and its deployments."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from lexmill.base.errors import UserError
from lexmill.commands.schedule import Timetable, seconds_of
from tests.support.small_project import whole
from tests.support.waiting import wait_for

from .conftest import PROJECT, Workspace
from .test_cancel import is_free, started, states_of


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("1.5 s", 1.5), ("15min", 900), ("6 h", 21600), ("2 hours", 7200), ("1 day", 86400)],
)
def test_intervals(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    ("cron", "interval", "zone", "message"),
    [
        (None, None, "UTC", "say when: either"),
        ("0 2 * * *", "6 h", "UTC", "say when: either"),
        (None, "6 parsecs", "UTC", "--interval '6 parsecs'"),
        (None, "0", "UTC", "--interval '0'"),
        ("0 2 * *", None, "UTC", "five fields"),
        ("0 2 * * *", None, "Europe/Berlim", "did you mean 'Europe/Berlin'?"),
    ],
)
def test_a_timetable_that_is_none_is_reported(cron: str | None, interval: str | None, zone: str, message: str) -> None:
    with pytest.raises(UserError) as raised:
        Timetable.parse(cron, interval, zone)
    assert message in str(raised.value)


def test_a_cron_expression_that_prefect_refuses_is_a_sentence() -> None:
    from flows.serving import when

    with pytest.raises(UserError, match="--cron '99 2"):
        when(Timetable.parse("99 2 * * *", None, "UTC"))
    assert when(Timetable.parse("0 2 * * *", None, "Europe/Berlin")).timezone == "Europe/Berlin"


@pytest.mark.parametrize("cron", ["0 2 30 2 *", "0 2 31 4,6 *"])
def test_a_timetable_that_never_comes_is_refused(cron: str) -> None:
    from flows.serving import when

    with pytest.raises(UserError, match="there is no such date"):
        when(Timetable.parse(cron, None, "UTC"))


@pytest.mark.parametrize("cron", ["0 2 29 2 *", "0 2 31 * *", "@daily"])
def test_a_timetable_that_comes_seldom_is_one(cron: str) -> None:
    from flows.serving import when

    assert when(Timetable.parse(cron, None, "UTC")).cron == cron


def test_two_workspaces_on_one_server_have_two_deployments() -> None:
    from flows.serving import deployment_name

    names = {deployment_name(Path(place)) for place in ("/a/project", "/b/project", "/b/my project: 2")}
    assert len(names) == 3
    assert all(name.replace("-", "").replace(".", "").replace("_", "").isalnum() for name in names)


def test_what_a_served_flow_is_pickled_from_holds_no_lock() -> None:
    """`serve` pickles the flow, and with it what its module refers to."""
    import cloudpickle

    import flows.approval
    import flows.cancelling
    import flows.pages
    import flows.pipeline
    import flows.turns

    for module in (flows.pipeline, flows.pages, flows.approval, flows.cancelling, flows.turns):
        cloudpickle.register_pickle_by_value(module)
        try:
            assert cloudpickle.loads(cloudpickle.dumps(flows.pipeline.pipeline)).name == "lexmill"
        finally:
            cloudpickle.unregister_pickle_by_value(module)


def deployment(workspace: Workspace) -> dict[str, Any] | None:
    """The served deployment of this workspace, once it is active."""
    from flows.serving import deployment_name

    found = workspace.ask(
        "deployments", sort="NAME_ASC", deployments={"name": {"any_": [deployment_name(workspace.root)]}}
    )
    return next((one for one in found if not one["paused"]), None)


def serve(workspace: Workspace, *options: str) -> Any:
    shutil.copytree(PROJECT / "flows", workspace.root / "flows", ignore=shutil.ignore_patterns("__pycache__"))
    return workspace.start("-m", "lexmill.cli", "schedule", *options)


@pytest.mark.e2e
def test_nights_come_again_and_again_and_sigterm_ends_the_last_one(workspace: Workspace) -> None:
    workspace.stage("fetch", "echo 1 > fetch.out")
    commit(workspace)
    with serve(workspace, "--interval", "4", "--nightly", "--branch", "nights") as process:
        mine = wait_for(lambda: deployment(workspace), "nothing is served")
        assert mine["schedules"][0]["schedule"]["interval"] == 4
        assert (mine["parameters"]["nightly"], mine["parameters"]["branch"]) == (True, "nights")

        def ended() -> dict[str, str]:
            found = workspace.runs("COMPLETED", deployment_id={"any_": [mine["id"]]})
            return {run["state_name"]: run["id"] for run in found}

        wait_for(lambda: set(ended()) == {"Completed", "Skipped"}, "the schedule does not fire again")
        first, skipped = ended()["Completed"], ended()["Skipped"]
        workspace.stage("train", "echo $$ > pid; sleep 600", ("fetch",))
        stage = started(workspace)
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=120)
    assert process.returncode == 143, output
    assert "scheduled every 4 seconds; Ctrl-C ends the schedule" in output
    assert "Traceback" not in output
    assert not psutil.pid_exists(stage)
    assert "train" not in (workspace.root / "dvc.lock").read_text()
    assert "committed to 'nights'" in workspace.artifacts(first)["nightly"]["data"]
    assert last_message(workspace, "nights") == "Nightly results"
    assert workspace.artifacts(skipped)["skipped"]["data"] == "1 stages unchanged, nothing to run"
    assert not workspace.runs("RUNNING", deployment_id={"any_": [mine["id"]]})
    assert deployment(workspace) is None  # paused: nothing piles up while nobody serves it
    assert is_free(workspace)


def last_message(workspace: Workspace, branch: str) -> str:
    """Of the newest commit of a branch."""
    command = ["git", "log", "--max-count=1", "--format=%s", branch]
    return subprocess.run(command, cwd=workspace.root, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.e2e
def test_an_event_starts_a_run_that_the_page_can_cancel(workspace: Workspace) -> None:
    workspace.stage("train", "echo $$ > pid; sleep 600")
    choices = {"experiment": "x", "data_seed": 1, "training_seed": 1, "corpora": {"plays": PLAYS}}
    (workspace.root / "params.yaml").write_text(yaml.safe_dump(whole(choices)))
    (workspace.root / "plays.txt").write_text("To be\n")
    with serve(workspace, "--cron", "0 2 * * *", "--timezone", "Europe/Berlin") as process:
        wait_for(lambda: deployment(workspace), "nothing is served")
        second = subprocess.run(
            [sys.executable, "-m", "lexmill.cli", "schedule", "--interval", "9"],
            cwd=workspace.root,
            env={**workspace.environment, "PREFECT_API_URL": f"{workspace.url}/api"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            check=False,
        )
        assert second.returncode == 75, second.stdout
        assert "already running: schedule" in second.stdout
        code, output = workspace.run("-m", "flows", "changed", "nothing")
        assert (code, "corpora.nothing is not in params.yaml" in output) == (2, True)
        tell = ("-m", "flows", "changed", "plays")
        code, output = workspace.run(*tell, server=False)
        assert (code, "no schedule listens" in output) == (2, True), output
        code, output = workspace.run(*tell)
        assert (code, "reported that corpus 'plays' changed" in output) == (0, True), output
        stage = started(workspace)
        run = workspace.runs("RUNNING")[0]["id"]
        mine = deployment(workspace)
        assert mine is not None
        assert workspace.flow_run(run)["deployment_id"] == mine["id"]
        code, output = workspace.run(*tell)  # while a run is at work: no second one
        assert code == 0, output
        two = wait_for(lambda: len(found := runs_of(workspace, mine)) == 2 and found, "the second event is not heard")
        (other,) = (one["id"] for one in two if one["id"] != run)
        wait_for(lambda: workspace.state(other) == "Cancelled", "the second run is not let go")
        assert workspace.state(run) == "Running"
        workspace.cancel(run)
        wait_for(lambda: not psutil.pid_exists(stage), "the stage goes on")
        wait_for(lambda: workspace.state(run) == "Cancelled")
        assert is_free(workspace)
        assert process.poll() is None  # the schedule goes on
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=120)
    assert process.returncode == 130, output


PLAYS = {
    "kind": "text",
    "source": {"kind": "file", "paths": ["plays.txt"]},
    "reader": {"format": "text"},
    "unit": "play",
}


# ------------------------------------------------------------------------------------------------ prefect.yaml


def prefect(workspace: Workspace, *command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "prefect", *command],
        cwd=workspace.root,
        env={**workspace.environment, "PREFECT_API_URL": f"{workspace.url}/api", "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.e2e
def test_prefect_yaml_deploys_and_a_worker_runs_the_night(workspace: Workspace) -> None:
    workspace.environment.pop("PYTHONPATH")  # a worker finds the flow in the folder where it was deployed
    shutil.copytree(PROJECT / "flows", workspace.root / "flows", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(PROJECT / "prefect.yaml", workspace.root)
    workspace.stage("fetch", "echo 1 > fetch.out")
    commit(workspace)
    file = yaml.safe_load((PROJECT / "prefect.yaml").read_text(encoding="utf-8"))
    pools = {one["name"]: one["work_pool"]["name"] for one in file["deployments"]}
    assert set(pools) == {"process", "docker", "kubernetes"}
    for kind, pool in pools.items():  # the templates of all kinds are in Prefect itself
        prefect(workspace, "work-pool", "create", pool, "--type", kind, "--overwrite")
    prefect(workspace, "--no-prompt", "deploy", "--all")

    made = {one["name"]: one for one in workspace.ask("deployments", sort="NAME_ASC") if one["name"] in pools}
    for name, pool in pools.items():
        one = made[name]
        assert one["work_pool_name"] == pool
        assert one["concurrency_options"]["collision_strategy"] == "CANCEL_NEW"
        assert one["global_concurrency_limit"]["limit"] == 1
        assert one["schedules"][0]["schedule"]["cron"] == "0 2 * * *"
        assert one["parameters"]["nightly"] is True
    assert made["docker"]["job_variables"]["volumes"] == ["lexmill-workspace:/workspace"]
    listening = workspace.post("automations/filter", limit=200)
    mine = {made[name]["id"] for name in pools}
    triggered = [one for one in listening if {action.get("deployment_id") for action in one["actions"]} & mine]
    assert len(triggered) == 3
    assert all(one["trigger"]["expect"] == ["lexmill.corpus.changed"] for one in triggered)

    # As docs/schedule.md says it is done from anywhere.
    prefect(workspace, "event", "emit", "lexmill.corpus.changed", "--resource-id", "lexmill.corpus.news")
    runs = {
        name: wait_for(lambda one=one: runs_of(workspace, one), f"no run of {name}")[0] for name, one in made.items()
    }
    assert all(one["parameters"]["nightly"] is True for one in runs.values())
    worker = workspace.start("-m", "prefect", "worker", "start", "--pool", pools["process"])
    with worker:
        night = runs["process"]["id"]
        wait_for(lambda: worker.poll() is not None or workspace.state(night) in ("Completed", "Failed", "Crashed"))
        state = workspace.state(night)
        assert state == "Completed", (worker.terminate(), worker.communicate(timeout=120))

        workspace.stage("train", "python parent.py", ("fetch",))
        (workspace.root / "parent.py").write_text(WITH_CHILD)
        made_by_hand = f"deployments/{made['process']['id']}/create_flow_run"
        run = workspace.post(made_by_hand, parameters={"nightly": False, "targets": ["train"]})["id"]
        tree = [started(workspace), int((workspace.root / "child").read_text())]
        assert all(map(psutil.pid_exists, tree))
        workspace.cancel(run)
        wait_for(lambda: not any(map(psutil.pid_exists, tree)), "a process of the stage goes on")
        wait_for(lambda: workspace.state(run) == "Cancelled", "the run is not shown as cancelled")
        wait_for(lambda: is_free(workspace), "the workspace stays held")
        worker.send_signal(signal.SIGINT)
        worker.communicate(timeout=120)
    assert last_message(workspace, "nightly") == "Nightly results"
    assert "committed to 'nightly'" in workspace.artifacts(night)["nightly"]["data"]
    wait_for(lambda: states_of(workspace, run) == {"train": "Cancelled"})
    recorded = (workspace.root / "dvc.lock").read_text()
    assert "fetch:" in recorded
    assert "train:" not in recorded
    assert not (workspace.root / "train.out").exists()
    for one in made.values():  # its schedule would go on
        workspace.post(f"deployments/{one['id']}/pause_deployment")


# A stage whose child hears nothing.
WITH_CHILD = """
import os, pathlib, subprocess, time
child = subprocess.Popen(["sh", "-c", "trap '' TERM INT HUP; for i in $(seq 600); do sleep 1; done"])
pathlib.Path("child").write_text(str(child.pid))
pathlib.Path("pid").write_text(str(os.getpid()))
time.sleep(600)
"""


def runs_of(workspace: Workspace, deployment: dict[str, Any]) -> list[dict[str, Any]]:
    """The runs of a deployment that an event, not its timetable, has started."""
    found = workspace.ask("flow_runs", flow_runs={"deployment_id": {"any_": [deployment["id"]]}})
    return [one for one in found if (one["created_by"] or {}).get("type") == "AUTOMATION"]


def commit(workspace: Workspace) -> None:
    """All that lies in the workspace becomes its first commit."""
    names = {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in WHO.items()}
    workspace.environment.update(names)
    (workspace.root / ".gitignore").write_text("*.out\nprefect-home/\n.lexmill/\n")
    for command in (["git", "add", "-A"], ["git", "commit", "-q", "-m", "first"]):
        subprocess.run(command, cwd=workspace.root, env={**os.environ, **names}, check=True)


WHO = {"NAME": "test", "EMAIL": "test@localhost"}
