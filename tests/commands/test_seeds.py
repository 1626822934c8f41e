"""`lexmill seeds`: a training a seed, each once; mean and spread by hand; one entry that the page shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlflow
import pytest
import yaml

from lexmill import params
from lexmill.commands.seeds import summary
from lexmill.report import seeds
from tests.commands.compare.conftest import write_presets
from tests.support.small_project import SmallProject, params_of, whole


def test_mean_and_spread_by_hand() -> None:
    made = [
        {"accuracy": 0.8, "accuracy_low": 0.7, "accuracy_high": 0.9, "items": 10, "interval_unit": "text", "rare": 1.0},
        {"accuracy": 0.9, "accuracy_low": 0.8, "accuracy_high": 1.0, "items": 10, "interval_unit": "text"},
        {"accuracy": 0.7, "accuracy_low": 0.6, "accuracy_high": 0.8, "items": 10, "interval_unit": "text"},
    ]
    found = summary(made)
    assert found.keys() == {"accuracy", "items"}  # no interval, no text, nothing that one training lacks
    assert found["accuracy"] == {
        "mean": pytest.approx(0.8),
        "deviation": pytest.approx(0.1),  # sqrt((0.01 + 0.01) / 2)
        "least": 0.7,
        "largest": 0.9,
        "values": [0.8, 0.9, 0.7],
    }
    assert found["items"]["deviation"] == 0
    assert summary(made[:1])["accuracy"]["deviation"] == 0


@pytest.fixture
def small(encoded: SmallProject, tmp_path: Path) -> SmallProject:
    project = encoded.copy(tmp_path / "a project")
    write_presets(project.root)
    data = params_of(8)
    data["models"]["toy"]["start"] = "conf/initialization/gpt2.yaml"
    (project.root / "params.yaml").write_text(yaml.safe_dump(whole(data)), encoding="utf-8")
    return project


def trials(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (root / ".lexmill" / "seeds").glob("*/trials/*.json")}


@pytest.mark.timeout(900)
def test_seeds_are_trained_once_and_become_one_entry(small: SmallProject) -> None:
    root = small.root
    small.write_execution(publish=True, tracking_uri="sqlite:///mlflow.db")
    kept = {name: (root / name).read_bytes() for name in ("params.yaml", "dvc.lock")}
    small.run("-m", "lexmill.cli", "seeds", "toy", "--seeds", "2")
    first = trials(root)
    assert {json.loads(text)["values"]["training_seed"] for text in first.values()} == {2, 3}
    said = small.run("-m", "lexmill.cli", "seeds", "toy", "--seeds", "3")
    after = trials(root)
    assert first.items() <= after.items()
    assert len(after) == 3
    assert said.count("toy: seed") == 1  # seed 4 alone was trained
    assert {name: (root / name).read_bytes() for name in kept} == kept
    assert not (root / "artifacts" / "models").exists()

    entry = json.loads((root / "metrics" / "seeds" / "toy.json").read_text(encoding="utf-8"))
    bits = [json.loads(text)["metrics"]["bits_per_byte"] for _, text in sorted(after.items())]
    assert entry["seeds"] == [2, 3, 4]
    assert entry["test"]["bits_per_byte"]["values"] == bits
    assert len(set(bits)) == 3  # another seed, another model
    assert f"{sum(bits) / 3:.3f} ± " in said
    assert "| 3 |" in said

    client = mlflow.MlflowClient(f"sqlite:///{root / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("small")
    assert experiment is not None
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    parent = runs["seeds of toy"]
    assert {runs[f"toy {number}"].data.tags["mlflow.parentRunId"] for number in (1, 2, 3)} == {parent.info.run_id}
    assert parent.data.metrics["test/bits_per_byte"] == pytest.approx(sum(bits) / 3)
    assert parent.data.metrics["test/bits_per_byte_deviation"] == pytest.approx(
        entry["test"]["bits_per_byte"]["deviation"]
    )
    assert "±" in parent.data.tags["mlflow.note.content"]

    (shown,) = seeds.collect(params.load(root / "params.yaml"), root)
    assert shown.notes == []
    assert shown.rows[0][0] == "toy"
    data: dict[str, Any] = yaml.safe_load((root / "params.yaml").read_text(encoding="utf-8"))
    data["models"]["toy"]["recipe"]["length"] = "9 steps"
    (root / "params.yaml").write_text(yaml.safe_dump(data), encoding="utf-8")
    (shown,) = seeds.collect(params.load(root / "params.yaml"), root)
    assert shown.notes == ["toy: its settings have changed since; `lexmill seeds toy` trains it anew"]

    assert "toy1" in small.run("-m", "lexmill.cli", "seeds", "toy1", code=2)
