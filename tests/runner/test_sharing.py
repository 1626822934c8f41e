"""Outputs at a DVC remote: those that a commit names, whatever lies here by then; errors reported with reasons."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from dvc.repo import Repo

from lexmill.base.errors import RetryableError, UserError
from lexmill.runner.sharing import default_remote, push_outputs


class Outputs:
    """A workspace of DVC with one stage, whose output is a folder of two files."""

    def __init__(self, root: Path) -> None:
        self.root, self.store = root / "work", root / "store"
        self.root.mkdir()
        self.git("init", "-q")
        self.git("config", "user.name", "somebody")
        self.git("config", "user.email", "somebody@localhost")
        Repo.init(str(self.root)).close()

    def git(self, *words: str) -> str:
        return subprocess.run(["git", *words], cwd=self.root, check=True, capture_output=True, text=True).stdout.strip()

    def made(self, text: str) -> str:
        """The commit whose stage made `text`."""
        stage = {"cmd": f"mkdir -p made && echo {text} > made/a && echo b > made/b", "outs": ["made"]}
        (self.root / "dvc.yaml").write_text(yaml.safe_dump({"stages": {"make": stage}}))
        with Repo(str(self.root)) as repo:
            repo.reproduce()
        self.git("add", "-A")
        self.git("commit", "-q", "-m", text)
        return self.git("rev-parse", "HEAD")

    def configure(self, url: str | Path, *lines: str) -> None:
        text = f"[core]\n    remote = far\n['remote \"far\"']\n    url = {url}\n"
        (self.root / ".dvc" / "config.local").write_text("\n    ".join([text.rstrip("\n"), *lines]) + "\n")

    @property
    def stored(self) -> set[str]:
        """The contents at the remote."""
        return {path.read_text() for path in self.store.rglob("*") if path.is_file() and path.suffix != ".dir"}


@pytest.fixture
def outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Outputs:
    monkeypatch.setenv("DVC_SITE_CACHE_DIR", str(tmp_path / "site"))
    made = Outputs(tmp_path)
    monkeypatch.chdir(made.root)
    return made


def test_what_a_commit_names_is_pushed_and_no_more(outputs: Outputs) -> None:
    assert default_remote(outputs.root) is None
    assert default_remote(outputs.root.parent) is None  # no project of DVC
    first = outputs.made("one")
    outputs.made("two")
    # Its commit knows no remote: the one of today is meant, also where it is this machine's alone.
    outputs.configure(outputs.store)
    assert default_remote(outputs.root) == "far"
    assert push_outputs(outputs.root, [first])
    assert outputs.stored == {"one\n", "b\n"}
    second, third = outputs.made("two and a half"), outputs.made("three")
    assert push_outputs(outputs.root, [third, second])
    assert outputs.stored == {"one\n", "two and a half\n", "three\n", "b\n"}


def test_why_nothing_came_through_is_said(outputs: Outputs) -> None:
    commit = outputs.made("one")
    outputs.store.write_text("no folder")
    outputs.configure(outputs.store / "within")
    with pytest.raises(RetryableError, match="Not a directory"):
        push_outputs(outputs.root, [commit])
    outputs.store.unlink()
    outputs.configure(outputs.store)
    shutil.rmtree(outputs.root / ".dvc" / "cache")
    assert not push_outputs(outputs.root, [commit]), "the cache was removed: they are nowhere"
    assert outputs.stored == set()


def test_a_remote_that_cannot_take_commits_is_reported_before(outputs: Outputs) -> None:
    outputs.configure("s3://bucket/path", "version_aware = true")
    with pytest.raises(UserError, match=r"'far' keeps versions by itself.*make a plain one the default"):
        default_remote(outputs.root)
    (outputs.root / ".dvc" / "config.local").write_text("[core]\n    remote = far\n")
    with pytest.raises(UserError, match="default remote 'far' is not defined"):
        default_remote(outputs.root)
    (outputs.root / ".dvc" / "config.local").write_text("[core]\n    remoet = far\n")
    with pytest.raises(UserError, match="DVC's configuration cannot be read"):
        default_remote(outputs.root)
