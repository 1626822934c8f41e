"""A damaged object that `dvc pull` brings without an error is found by the next run."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from dvc.repo import Repo

from lexmill.base.errors import UserError
from lexmill.runner import graph, verified


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace whose stage made a folder and a file, pushed to a remote beside it."""
    monkeypatch.setenv("DVC_SITE_CACHE_DIR", str(tmp_path / "site"))
    root = tmp_path / "work"
    root.mkdir()
    monkeypatch.chdir(root)
    subprocess.run(["git", "init", "-q"], check=True)
    Repo.init().close()
    (root / ".dvc" / "config").write_text(f"[core]\n    remote = far\n['remote \"far\"']\n    url = {tmp_path}/far\n")
    stage = {"cmd": "mkdir -p made && echo one > made/a && echo two > made/b && echo three > c", "outs": ["made", "c"]}
    (root / "dvc.yaml").write_text(yaml.safe_dump({"stages": {"make": stage}}))
    (root / "params.yaml").write_text("{}\n")
    monkeypatch.setattr(graph, "check_mixtures", lambda _root: None)
    with Repo() as repo:
        repo.reproduce()
        repo.push()
    return root


def pulled_anew(root: Path) -> None:
    """As in another clone: neither cache nor outputs, all pulled."""
    shutil.rmtree(root / ".dvc" / "cache")
    shutil.rmtree(root / "made")
    (root / "c").unlink()
    shutil.rmtree(root / ".dvc" / "tmp", ignore_errors=True)
    done = subprocess.run([sys.executable, "-m", "dvc", "pull", "-q"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def objects(folder: Path, text: str) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.read_text() == text]


def damage(path: Path) -> None:
    path.chmod(0o644)
    path.write_text(path.read_text().upper())  # as many bytes


def test_a_sound_pull_is_verified_once(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pulled_anew(project)
    assert graph.read(project).todo == ()
    monkeypatch.setattr(verified, "_md5", None)  # nothing is hashed again
    assert graph.read(project).todo == ()


def test_damage_at_the_remote_is_found_after_a_pull(project: Path, tmp_path: Path) -> None:
    graph.read(project)  # the sound outputs of before are remembered
    (damaged,) = objects(tmp_path / "far", "two\n")  # of a folder's file; that of a single file DVC finds itself
    damage(damaged)
    pulled_anew(project)
    wrong = r"^made/b: its bytes are not those that dvc\.lock names.*dvc remote modify"
    with pytest.raises(UserError, match=wrong):
        graph.read(project)
    with pytest.raises(UserError, match=r"its bytes are not those"):  # until it is repaired
        graph.read(project)
    # As the message says: removed here and in the cache, the stage is run again.
    for path in [project / "made" / "b", *objects(project / ".dvc" / "cache", "TWO\n")]:
        path.unlink()
    assert [stage.name for stage in graph.read(project).todo] == ["make"]


def test_an_output_changed_by_hand_is_dvcs_to_see(project: Path) -> None:
    graph.read(project)
    (project / "c").chmod(0o644)
    (project / "c").unlink()
    (project / "c").write_text("changed by hand\n")
    (stage,) = graph.read(project).todo
    assert stage.changed == ("output c modified",)
