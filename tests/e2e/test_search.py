"""`lexmill search` on a real training: killed, gone on with, shown in MLflow, taken without training again."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import psutil
import pytest
import yaml

from tests.e2e.conftest import Project
from tests.support.waiting import wait_for

pytestmark = pytest.mark.e2e

SEARCH = """\
model: gpt
trials: 3
seed: 3
pruner: median
startup: 2
space:
  recipe.optimizer.lr: {kind: log_uniform, low: 0.001, high: 0.1}
  shape.dropout: {kind: choice, values: [0.0, 0.1]}
"""
RUNS = """
import json, mlflow
client = mlflow.MlflowClient("sqlite:///mlflow.db")
found = client.search_runs([e.experiment_id for e in client.search_experiments()], "tags.`lexmill.search` != ''")
print("RUNS " + json.dumps([
    [run.info.run_name, run.data.tags.get("mlflow.parentRunId", ""), run.info.run_id, run.data.metrics] for run in found
]))
"""


@pytest.fixture
def copy(project: Project, tmp_path: Path) -> Project:
    root = tmp_path / "a project"
    shutil.copytree(project.root, root, symlinks=True)
    (root / "conf" / "search" / "tiny.yaml").write_text(SEARCH)
    return Project(root, {})


def ended(root: Path) -> list[dict[str, object]]:
    """What the trials gave, without their times."""
    files = sorted((root / ".lexmill" / "searches").glob("tiny-*/trials/*.json"))
    return [{k: v for k, v in json.loads(f.read_text()).items() if k not in ("started", "seconds")} for f in files]


def test_a_search_survives_a_kill_and_its_best_needs_no_second_training(copy: Project) -> None:
    params, lock = (copy.root / "params.yaml").read_bytes(), (copy.root / "dvc.lock").read_bytes()
    with copy.start("-m", "lexmill.cli", "search", "tiny") as begun:
        wait_for(lambda: ended(copy.root), alive=begun)
        tree = psutil.Process(begun.pid).children(recursive=True)
        os.kill(begun.pid, signal.SIGKILL)
        begun.communicate()
    psutil.wait_procs(tree, timeout=30)
    assert not [process for process in tree if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]

    said = copy.lexmill("search", "tiny")
    found = ended(copy.root)
    assert len(found) == 3
    assert said.count("complete") + said.count("ended early") == 3
    assert (copy.root / "params.yaml").read_bytes() == params
    assert (copy.root / "dvc.lock").read_bytes() == lock
    assert not list((copy.root / ".lexmill" / "searches").glob("tiny-*/checkpoints/*"))

    rows = json.loads(copy.run("-c", RUNS).stdout.split("RUNS ")[1])
    (parent,) = (run_id for name, _, run_id, _ in rows if name == "search tiny")
    children = {name: (above, metrics) for name, above, _, metrics in rows if name != "search tiny"}
    assert sorted(children) == ["gpt 1", "gpt 2", "gpt 3"]
    for trial in found:
        above, metrics = children[f"gpt {trial['number']}"]
        assert above == parent
        assert metrics["valid_loss"] == trial["valid_loss"]

    # An undisturbed search of the same finds the same; its trainings are in the cache.
    shutil.rmtree(copy.root / ".lexmill" / "searches")
    copy.lexmill("search", "tiny", "--adopt")
    assert ended(copy.root) == found

    best = min((t for t in found if t["state"] == "complete"), key=lambda t: float(str(t["valid_loss"])))
    choice = yaml.safe_load((copy.root / "conf" / "model" / "tiny_found.yaml").read_text())
    assert choice["recipe"]["optimizer"]["lr"] == best["values"]["recipe.optimizer.lr"]  # type: ignore[index]
    changed = yaml.safe_load(params)
    changed["models"]["gpt"] = choice
    (copy.root / "params.yaml").write_text(yaml.safe_dump(changed, sort_keys=False))
    assert "train@gpt: restored from the cache" in copy.run("-m", "lexmill.cli", "run", "train@gpt").stderr
