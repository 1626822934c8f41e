"""The command itself in a small project: runs that fail, are killed and end well, as MLflow shows them."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from lexmill.runner.record import records
from lexmill.tracking import runs
from tests.support.once import init_repository
from tests.support.processes import Started
from tests.support.small_project import whole
from tests.support.waiting import wait_for

from .test_points import client_of

FOREIGN = ("LEXMILL_", "DVC_", "MLFLOW_", "PREFECT_")


class Project:
    """A workspace of two stages, `make@x` and `use`, beside a store."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(FOREIGN)},
            "DVC_NO_ANALYTICS": "1",
            "CI": "1",
            **{name: str(root / ".dvc-home" / name) for name in ("DVC_SITE_CACHE_DIR", "DVC_GLOBAL_CONFIG_DIR")},
        }
        init_repository(root)
        (root / "conf" / "execution").mkdir(parents=True)
        (root / "conf" / "execution" / "local.yaml").write_text("accelerator: cpu\n", encoding="utf-8")
        params = {"experiment": "tiny", "data_seed": 1, "training_seed": 1}
        (root / "params.yaml").write_text(yaml.safe_dump(whole(params)), encoding="utf-8")

    def stages(self, second: str) -> None:
        make = "mkdir -p metrics/make && echo '{\"lines\": 3}' > metrics/make/${item}.json && echo 1 > ${item}"
        stages: dict[str, Any] = {"make": {"foreach": ["x"], "do": {"cmd": make, "outs": ["${item}"]}}}
        stages["use"] = {"cmd": second, "deps": ["x"], "outs": ["y"]}
        (self.root / "dvc.yaml").write_text(yaml.safe_dump({"stages": stages}), encoding="utf-8")

    def start(self, *words: str, command: Sequence[str] = ("-m", "lexmill.cli")) -> Started:
        return Started(*command, *words, root=self.root, environment=self.environment)

    def lexmill(self, *words: str) -> tuple[int, str]:
        with self.start(*words) as process:
            message, _ = process.communicate(timeout=600)
            return process.returncode, message

    def statuses(self) -> list[tuple[str, dict[str, str]]]:
        """Of each run, the oldest first: its status, and that of each of its children."""
        client = client_of(self.root)
        entry = client.get_experiment_by_name("tiny")
        assert entry is not None
        listed = client.search_runs([entry.experiment_id], order_by=["attributes.start_time ASC"])
        parents = {run.info.run_id: run for run in listed if runs.RUN in run.data.tags}
        return [
            (
                parent.info.status,
                {
                    str(run.info.run_name): run.info.status
                    for run in listed
                    if run.data.tags.get("mlflow.parentRunId") == run_id
                },
            )
            for run_id, parent in parents.items()
        ]


@pytest.mark.e2e
def test_runs_that_fail_are_killed_and_end_well(root: Path) -> None:
    project = Project(root)
    project.stages("sh -c 'echo no room >&2; exit 75'")
    code, message = project.lexmill("run")
    assert code == 75, message
    assert project.statuses() == [("FAILED", {"make@x": "FINISHED", "use": "FAILED"})]

    project.stages("sleep 120")
    process = project.start("run")
    wait_for(lambda: any(stage.state == "running" for stage in records(root)[-1].stages), alive=process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()

    project.stages("cp x y")
    code, message = project.lexmill("run")
    assert code == 0, message
    assert project.statuses()[1:] == [("KILLED", {"use": "KILLED"}), ("FINISHED", {"use": "FINISHED"})]
    client = client_of(root)
    (made,) = client.search_runs(["1"], "tags.`lexmill.stage` = 'make@x'")
    assert made.data.metrics["lines"] == 3
    assert {record.what for record in records(root)} == {"lexmill run"}
    assert [record.parent_run_id is not None for record in records(root)] == [True] * 3
    sent = runs.RunCursor.read(records(root)[-1].path, records(root)[-1].token)
    assert sent.stages["make@x"] == made.info.run_id  # unchanged: linked, not logged again
    assert project.lexmill("sync") == (0, "nothing waits\n")
    code, message = project.lexmill("run")
    assert (code, len(records(root))) == (0, 3), message
