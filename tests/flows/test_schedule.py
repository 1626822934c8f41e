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

from lexmill.commands.schedule import Timetable, seconds_of
from lexmill.errors import UserError

from .conftest import PROJECT, Workspace, wait_for
from .test_cancel import is_free, started


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("1.5 s", 1.5), ("15min", 900), ("6 h", 21600), ("2 hours", 7200), ("1 day", 86400)],
)
def test_intervals(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    ("cron", "interval", "zone", "told"),
    [
        (None, None, "UTC", "one of both"),
        ("0 2 * * *", "6 h", "UTC", "one of both"),
        (None, "6 parsecs", "UTC", "--interval '6 parsecs'"),
        (None, "0", "UTC", "--interval '0'"),
        ("0 2 * *", None, "UTC", "five fields"),
        ("0 2 * * *", None, "Europe/Berlim", "did you mean 'Europe/Berlin'?"),
    ],
)
def test_a_timetable_that_is_none_is_told(cron: str | None, interval: str | None, zone: str, told: str) -> None:
    with pytest.raises(UserError) as raised:
        Timetable.parse(cron, interval, zone)
    assert told in str(raised.value)


def test_a_cron_expression_that_prefect_refuses_is_a_sentence() -> None:
    from flows.serving import when

    with pytest.raises(UserError, match="--cron '99 2"):
        when(Timetable.parse("99 2 * * *", None, "UTC"))
    assert when(Timetable.parse("0 2 * * *", None, "Europe/Berlin")).timezone == "Europe/Berlin"


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

    for module in (flows.pipeline, flows.pages, flows.approval, flows.cancelling):
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
def test_an_interval_fires_again_and_again_and_sigterm_ends_it(workspace: Workspace) -> None:
    workspace.stage("fetch", "echo 1 > fetch.out")
    with serve(workspace, "--interval", "4") as process:
        mine = wait_for(lambda: deployment(workspace), "nothing is served")

        def ended() -> dict[str, str]:
            found = workspace.runs("COMPLETED", deployment_id={"any_": [mine["id"]]})
            return {run["state_name"]: run["id"] for run in found}

        wait_for(lambda: set(ended()) == {"Completed", "Skipped"}, "the schedule does not fire again")
        skipped = ended()["Skipped"]
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=120)
    assert process.returncode == 143, output
    assert "Traceback" not in output
    assert (workspace.root / "fetch.out").exists()
    assert workspace.artifacts(skipped)["skipped"]["data"] == "1 stages unchanged, nothing to run"
    assert deployment(workspace) is None  # paused: nothing piles up while nobody serves it
    assert is_free(workspace)


@pytest.mark.e2e
def test_an_event_starts_a_run_that_the_page_can_cancel(workspace: Workspace) -> None:
    workspace.stage("pretrain", "echo $$ > pid; sleep 600")
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
        code, output = workspace.run("-m", "flows.pipeline", "changed", "nothing")
        assert (code, "corpora.nothing is not in params.yaml" in output) == (2, True)
        code, output = workspace.run("-c", TELL)
        assert code == 0, output
        stage = started(workspace)
        run = workspace.runs("RUNNING")[0]["id"]
        workspace.cancel(run)
        wait_for(lambda: not psutil.pid_exists(stage), "the stage goes on")
        wait_for(lambda: workspace.state(run) == "Cancelled")
        assert is_free(workspace)
        assert process.poll() is None  # the schedule goes on
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=120)
    assert process.returncode == 130, output


TELL = "from flows.serving import tell_changed; tell_changed('plays')"


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

    worker = workspace.start("-m", "prefect", "worker", "start", "--pool", pools["process"])
    with worker:
        run = workspace.post(f"deployments/{made['process']['id']}/create_flow_run")["id"]
        wait_for(lambda: worker.poll() is not None or workspace.state(run) in ("Completed", "Failed", "Crashed"))
        state = workspace.state(run)
        worker.send_signal(signal.SIGINT)
        output, _ = worker.communicate(timeout=120)
    assert state == "Completed", output
    log = subprocess.run(
        ["git", "log", "--format=%s", "nightly"],
        cwd=workspace.root,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        check=True,
    )
    assert log.stdout.split("\n")[0] == "Nightly results"
    assert "committed to 'nightly'" in workspace.artifacts(run)["nightly"]["data"]


def commit(workspace: Workspace) -> None:
    """All that lies in the workspace becomes its first commit."""
    names = {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in WHO.items()}
    workspace.environment.update(names)
    (workspace.root / ".gitignore").write_text("*.out\nprefect-home/\n.lexmill/\n")
    for command in (["git", "add", "-A"], ["git", "commit", "-q", "-m", "first"]):
        subprocess.run(command, cwd=workspace.root, env={**os.environ, **names}, check=True)


WHO = {"NAME": "test", "EMAIL": "test@localhost"}
