"""A push that was stopped while DVC listed what to push: the next one pushes all."""

import subprocess
from pathlib import Path

import pytest
from dvc.repo import Repo
from dvc_data.index import DataIndex

from lexmill.runner.mending import forget_collections

FILES = 6


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repo:
    """Six outputs and an empty remote."""
    monkeypatch.setenv("DVC_SITE_CACHE_DIR", str(tmp_path / "site"))
    root = tmp_path / "work"
    root.mkdir()
    subprocess.run(["git", "init", "-q", root], check=True)
    made = Repo.init(str(root))
    with made.config.edit("local") as config:
        config["core"]["remote"] = "team"
        config["remote"]["team"] = {"url": str(tmp_path / "remote")}
    for i in range(FILES):
        (root / f"{i}.txt").write_text(f"output {i}")
    monkeypatch.chdir(root)
    Repo(str(root)).add([f"{i}.txt" for i in range(FILES)])
    return Repo(str(root))


def pushed(tmp_path: Path) -> int:
    return len([path for path in (tmp_path / "remote").rglob("*") if path.is_file()])


def stop_in_the_middle(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal after the second part of DVC's list is saved."""
    commit, saved = DataIndex.commit, []

    def interrupted(self: DataIndex) -> None:
        commit(self)
        saved.append(1)
        if len(saved) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(DataIndex, "commit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            repo.push()
    repo.close()


def test_the_next_push_is_whole(repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_in_the_middle(repo, monkeypatch)
    assert pushed(tmp_path) == 0
    again = Repo(str(tmp_path / "work"))
    forget_collections(again)
    again.push()
    assert pushed(tmp_path) == FILES


def test_without_it_dvc_takes_a_part_for_the_whole(repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, DVC has mended it, and `forget_collections` can go."""
    stop_in_the_middle(repo, monkeypatch)
    Repo(str(tmp_path / "work")).push()
    assert 0 < pushed(tmp_path) < FILES
