"""What is made once a run: by one of those who ask at the same time, again after an error; repositories are alike."""

from __future__ import annotations

import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.once import init_repository, made_once


def test_who_asks_meanwhile_waits_and_gets_the_same(tmp_path_factory: pytest.TempPathFactory) -> None:
    made, second = [], threading.Event()

    def make(folder: Path) -> None:
        made.append(folder)
        second.wait(0.5)  # time for the other to ask
        (folder / "file").write_text("whole")

    def ask() -> str:
        return (made_once(tmp_path_factory, "test-once", make) / "file").read_text()

    tmp_path_factory.getbasetemp()
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(ask) for _ in range(2)]
        assert [one.result() for one in asked] == ["whole", "whole"]
    assert len(made) == 1


def test_what_failed_is_made_anew(tmp_path_factory: pytest.TempPathFactory) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        made_once(tmp_path_factory, "test-once-more", fail)
    folder = made_once(tmp_path_factory, "test-once-more", lambda folder: (folder / "whole").touch())
    assert [path.name for path in folder.iterdir()] == ["whole"]


def test_an_empty_repository_is_one_of_git_and_of_dvc(tmp_path: Path) -> None:
    from dvc.repo import Repo

    for name in ("one", "another"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine").touch()
        init_repository(tmp_path / name)
        command = ["git", "status", "--porcelain"]
        said = subprocess.run(command, cwd=tmp_path / name, check=True, capture_output=True, text=True).stdout
        assert said.split("\n") == ["A  .dvc/.gitignore", "A  .dvc/config", "A  .dvcignore", "?? mine", ""]
        with Repo(str(tmp_path / name)) as repo:
            assert Path(repo.root_dir) == tmp_path / name
