"""The table of `dvc exp show` and MLflow agree: each experiment's models are runs with the same metrics."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Project

pytestmark = pytest.mark.e2e

MODELS = ("gpt", "lstm", "sentiment", "en_de")
ASK = """
import json, mlflow
client = mlflow.MlflowClient("sqlite:///mlflow.db")
ids = [one.experiment_id for one in client.search_experiments()]
runs = client.search_runs(ids, "tags.`lexmill.dvc_experiment` LIKE '%greedy%'")
names = [one.name for one in client.search_registered_models()]
versions = {one: [v.run_id for v in client.search_model_versions(f"name = '{one}'")] for one in names}
print("FOUND " + json.dumps([{r.info.run_name: [r.info.run_id, r.data.metrics, r.data.tags] for r in runs}, versions]))
"""


def asked(copy: Project) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """MLflow's runs of the experiment by name, and the runs of all registered versions."""
    runs, versions = json.loads(copy.run("-c", ASK).stdout.split("FOUND ")[1])
    return runs, versions


def numbers(value: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """The metrics of a metrics file, by dotted keys."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from numbers(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, int | float):
        yield path, float(value)


def test_the_table_of_experiments_and_mlflow_agree(
    project: Project, tmp_path: Path, package_index: tuple[object, list[str]]
) -> None:
    root = tmp_path / "a project"
    shutil.copytree(project.root, root, symlinks=True)
    copy = Project(root, {})
    copy.git("add", "-A")
    copy.git("commit", "-q", "--allow-empty", "-m", "results")
    choices = ["experiment=smoke", *package_index[1], "models.en_de.evaluate.beam.beam_size=1"]
    copy.run("-m", "dvc", "exp", "run", "--temp", "-n", "greedy", *(f"--set-param={choice}" for choice in choices))
    before = asked(copy)[1]
    assert "experiment greedy: 4 models in MLflow" in copy.run("-m", "lexmill.cli", "publish").stderr

    table = json.loads(copy.run("-m", "dvc", "exp", "show", "--json").stdout)
    rows = [row for baseline in table for one in baseline.get("experiments") or [] for row in one["revs"]]
    (row,) = (row for row in rows if row["name"] == "greedy")
    assert row["data"]["params"]["params.yaml"]["data"]["models"]["en_de"]["evaluate"]["beam"]["beam_size"] == 1
    runs, after = asked(copy)
    assert set(runs) == set(MODELS)
    compared = 0
    for model in MODELS:
        _, metrics, tags = runs[model]
        shown = row["data"]["metrics"]
        trained, evaluated = (shown[f"metrics/{stage}/{model}.json"]["data"] for stage in ("train", "evaluate"))
        for part, found in (("train", trained), ("test", evaluated["test"])):
            for key, value in numbers(found):
                assert metrics[f"{part}/{key}"] == value, (model, key)
                compared += 1
        assert tags["lexmill.dvc_experiment"] == "greedy"
    assert compared > 20
    assert runs["en_de"][2]["mlflow.source.git.commit"] == row["rev"]
    assert after == before, "an experiment makes no version of a registered model"
    assert "models in MLflow" not in copy.run("-m", "lexmill.cli", "publish").stderr

    copy.run("-m", "dvc", "exp", "apply", "greedy")
    copy.run("-m", "lexmill.cli", "publish")
    applied = asked(copy)[1]
    assert set(applied["en_de"]) - set(before["en_de"]) == {runs["en_de"][0]}
