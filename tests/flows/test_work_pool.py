"""The launcher `prefect`: a stage as a flow run that a worker takes; its end, its cancel, and what is not there."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.services.started import prefect_worker
from tests.support.small_project import SmallProject
from tests.support.waiting import wait_for

pytestmark = pytest.mark.e2e

STAGE = ("-m", "lexmill.stages.train", "toy")


@pytest.fixture(scope="module")
def project(
    tmp_path_factory: pytest.TempPathFactory, encoded: SmallProject, prefect_url: str
) -> Iterator[SmallProject]:
    """A workspace up to its token shards, whose trainings go to a pool, and a worker of that pool."""
    folder = tmp_path_factory.mktemp("pool")
    prefect = {"PREFECT_API_URL": f"{prefect_url}/api", "PREFECT_HOME": str(folder / "prefect")}
    made = encoded.copy(folder / "a project", **prefect)
    with prefect_worker(folder, "stages", made.environment):
        yield made


def place(project: SmallProject, steps: int = 8, pool: str = "stages", **entry: Any) -> None:
    project.write_params(steps=steps)
    project.write_execution(
        checkpoint_seconds=0,
        poll_seconds=0.2,
        orphan_time="5 seconds",
        stages={"train": {"launcher": "prefect", **entry}},
        work_pool=pool,
    )


def steps(root: Path) -> int:
    return len(list((root / ".lexmill" / "checkpoints").glob("train-toy-*/step-*/COMPLETE")))


def test_a_worker_makes_what_dvc_records_and_its_error_comes_back(project: SmallProject) -> None:
    place(project)
    said = project.run("-m", "dvc", "repro", "train")
    assert "train toy: valid loss" in said
    assert "train@toy" in project.outputs()
    assert "Traceback" not in said
    tokens = project.root / "artifacts" / "tokens"
    tokens.rename(tokens.with_name("away"))
    said = project.run(*STAGE, code=2)
    assert said.count("there are no token shards here") == 1, said
    assert "Traceback" not in said
    assert project.status()["code"] == 2
    assert "there are no token shards here" in project.status()["message"]
    tokens.with_name("away").rename(tokens)


def test_a_stop_cancels_the_run_after_it_has_saved(project: SmallProject) -> None:
    place(project, steps=100_000)
    before = steps(project.root)
    with project.start(*STAGE) as process:
        wait_for(lambda: steps(project.root) > before)
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=120)
    assert process.returncode == 143, said
    assert "Traceback" not in said
    (status,) = (project.root / ".lexmill" / "jobs").rglob("status.json")
    assert json.loads(status.read_text())["code"] == 143


def test_a_stage_over_its_time_is_ended_by_its_worker_and_may_be_tried_again(project: SmallProject) -> None:
    place(project, steps=100_000, time="6 seconds")
    said = project.run(*STAGE, code=75)
    assert "6 s" in said
    assert "Traceback" not in said


def test_no_such_pool_and_no_server_are_sentences(project: SmallProject) -> None:
    place(project, pool="nowhere")
    said = project.run(*STAGE, code=2)
    assert "there is no work pool 'nowhere'; `prefect work-pool create --type process nowhere` makes it" in said
    place(project)
    said = project.run(*STAGE, code=75, PREFECT_API_URL="http://127.0.0.1:9/api", PREFECT_CLIENT_MAX_RETRIES="0")
    assert "Prefect does not answer" in said
    assert "Traceback" not in said
