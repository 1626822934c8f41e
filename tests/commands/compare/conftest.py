"""A small workspace with presets of its own in conf/model/, up to its token shards."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from lexmill.params.derived import PARTS
from tests.support.small_project import MODEL, ROOT, SmallProject, params_of


def preset(family: str, **shape: Any) -> dict[str, Any]:
    """An entry of `models` for the small workspace."""
    entry = copy.deepcopy(MODEL)
    entry |= {"family": family, "start": "conf/initialization/gpt2.yaml"}
    entry["shape"] = {"n_layer": 1, "d_model": 16, "context": 16, "dropout": 0.0, **shape}
    return entry


PRESETS = {
    "gpt_tiny": preset("gpt", n_head=2),
    "lstm_tiny": preset("lstm"),
    "lstm_long": preset("lstm", context=32),
}


def write_presets(root: Path) -> None:
    """Write conf/ with the workspace's own choices and the presets, and the stage that evaluates."""
    choices = {key: value for key, value in params_of(8).items() if key not in PARTS}
    derived = {part: f"${{derived:{part}}}" for part in PARTS}
    (root / "conf" / "model").mkdir(parents=True, exist_ok=True)
    shutil.copytree(ROOT / "conf" / "initialization", root / "conf" / "initialization", dirs_exist_ok=True)
    (root / "conf" / "config.yaml").write_text(yaml.safe_dump(choices | derived, sort_keys=False), encoding="utf-8")
    for name, entry in PRESETS.items():
        (root / "conf" / "model" / f"{name}.yaml").write_text(yaml.safe_dump(entry), encoding="utf-8")
    stages = yaml.safe_load((root / "dvc.yaml").read_text(encoding="utf-8"))
    stage = yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]["evaluate"]
    stage["do"]["params"] = [key for key in stage["do"]["params"] if isinstance(key, str) and key != "evaluation"]
    stages["stages"]["evaluate"] = stage
    (root / "dvc.yaml").write_text(yaml.safe_dump(stages, sort_keys=False), encoding="utf-8")


@pytest.fixture
def small(encoded: SmallProject, tmp_path: Path) -> SmallProject:
    """A copy of the encoded workspace with the presets."""
    project = encoded.copy(tmp_path / "a project")
    write_presets(project.root)
    return project
