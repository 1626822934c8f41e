"""Plain `dvc repro`, `lexmill run` and the flow: the same bytes of the whole DAG, and each goes on where another was.

The flow made the session's workspace. In a fresh clone the script that a registered model carries makes that model
again, `lexmill run` the language models, and `dvc repro` the rest. The shells differ in hash seed and threads, the
paths too; the clone publishes nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from mlflow import MlflowClient
from mlflow.artifacts import download_artifacts

from lexmill.base.storage import sha256_file
from lexmill.tracking import store
from tests.e2e.conftest import Project

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

DVC = ("-m", "dvc", "repro")
RUN = ("-m", "lexmill.cli", "run")
FLOW = ("-m", "flows", "run")


def results(project: Project) -> dict[str, object]:
    """What dvc.lock says of each output of each stage, and the hash of each result that git tracks."""
    root = project.root
    stages = yaml.safe_load((root / "dvc.lock").read_text(encoding="utf-8"))["stages"]
    found: dict[str, object] = {
        f"{name}, {output['path']}": {key: value for key, value in output.items() if key != "path"}
        for name, stage in stages.items()
        for output in stage.get("outs", [])
    }
    kept = project.git("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "metrics", "reports")
    return found | {name: sha256_file(root / name) for name in kept.split("\0") if name and (root / name).exists()}


def assert_same(project: Project, by_flow: Project) -> None:
    """The same outputs to the bit; all that are not are named."""
    ours, theirs = results(project), results(by_flow)
    assert len(theirs) > 50
    wrong = [
        f"{name}: {ours.get(name, 'missing')}, by the flow {theirs.get(name, 'missing')}"
        for name in sorted(ours.keys() | theirs.keys())
        if ours.get(name) != theirs.get(name)
    ]
    assert not wrong, "\n".join(["", *wrong])


def another_shell(project: Project, seed: str, threads: str) -> Project:
    """Other hash order and other threads than the settings say; nothing is published."""
    execution = project.root.parent / "unpublished.yaml"
    execution.write_text("accelerator: cpu\nthreads: 1\npublish: false\n")
    project.environment |= {"LEXMILL_EXECUTION": str(execution), "PYTHONHASHSEED": seed, "OMP_NUM_THREADS": threads}
    return project


@pytest.fixture(scope="module")
def clone(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A fresh clone in which the script of a version that the flow registered has run, word for word but for the
    installation.
    """
    where = tmp_path_factory.mktemp("elsewhere")
    uri = store.absolute_uri("sqlite:///mlflow.db", project.root)
    version = MlflowClient(uri, uri).get_model_version_by_alias("sentiment", "champion")
    assert (version.description or "").startswith("## Make it again")
    script = download_artifacts(
        run_id=version.run_id, artifact_path="reproduce.sh", tracking_uri=uri, dst_path=str(where)
    )
    text = Path(script).read_text(encoding="utf-8")
    assert "not committed" not in text
    assert "\nmake setup\n" in text
    # The clone's address is not known here (no remote), and what `make setup` installs is this environment.
    text = text.replace("git clone REPOSITORY", f"git clone '{project.root}'")
    text = text.replace("\nmake setup\n", f"\nmkdir .venv && ln -s '{Path(sys.executable).parent}' .venv/bin\n")
    made = another_shell(Project(where / "lexmill-sentiment", project.environment), "7", "2")
    made.environment["PYTHONPATH"] = f"{made.root / 'pipeline'}{os.pathsep}{made.root}"
    done = subprocess.run(
        ["sh", "-c", text], cwd=where, env=made.environment, capture_output=True, text=True, check=False, timeout=2400
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.endswith("the same model, to the bit\n")
    return made


def test_a_fresh_clone_makes_the_registered_model_again(clone: Project) -> None:
    stages = yaml.safe_load((clone.root / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    assert "report" in stages
    assert (clone.root / "artifacts" / "packages" / "sentiment").is_dir()
    assert not (clone.root / "artifacts" / "packages" / "gpt").exists()  # it alone, and what it needs


def test_each_door_goes_on_where_another_was_and_gives_what_the_flow_gave(project: Project, clone: Project) -> None:
    """`lexmill run` makes the language models, `dvc repro` all else; then no door has anything to do."""
    for name in ("gpt", "lstm"):
        clone.run(*RUN, f"register@{name}", PYTHONHASHSEED="8", OMP_NUM_THREADS="3")
    clone.run(*DVC)
    assert_same(clone, project)
    for door in (RUN, FLOW):
        assert "stages unchanged, nothing to run" in clone.run(*door).stderr
    assert "up to date" in clone.run(*DVC).stdout
