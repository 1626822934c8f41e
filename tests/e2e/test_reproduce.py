"""A registered model is made again from its commit, by the script that its version carries."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.artifacts import download_artifacts

from lexmill.tracking import store
from tests.e2e.conftest import Project

pytestmark = pytest.mark.e2e


def test_a_fresh_clone_makes_the_registered_model_again(project: Project, tmp_path: Path) -> None:
    """The script of a version that the smoke run registered, word for word but for the installation."""
    uri = store.absolute_uri("sqlite:///mlflow.db", project.root)
    client = MlflowClient(uri, uri)
    version = client.get_model_version_by_alias("sentiment", "champion")
    assert version.description is not None
    assert version.description.startswith("## Make it again")
    script = Path(
        download_artifacts(
            run_id=version.run_id, artifact_path="reproduce.sh", tracking_uri=uri, dst_path=str(tmp_path)
        )
    )
    text = script.read_text()
    assert "not committed" not in text
    assert "\nmake setup\n" in text
    bin_folder = Path(sys.executable).parent
    # The clone's address is not known here (no remote), and what `make setup` installs is this environment.
    text = text.replace("git clone REPOSITORY", f"git clone '{project.root}'")
    text = text.replace("\nmake setup\n", f"\nmkdir .venv && ln -s '{bin_folder}' .venv/bin\n")
    where = tmp_path / "elsewhere"
    where.mkdir()
    clone = where / "lexmill-sentiment"
    environment = project.environment | {"PYTHONPATH": f"{clone / 'pipeline'}{os.pathsep}{clone}"}
    done = subprocess.run(
        ["sh", "-c", text], cwd=where, env=environment, capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.endswith("the same model, to the bit\n")
