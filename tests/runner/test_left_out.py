"""What a worktree lacks is told by the names that the files have, whatever letters are in them."""

from __future__ import annotations

import subprocess
from pathlib import Path

from lexmill.runner.worktree import _tell_left_out


def test_names_are_not_escaped_and_an_old_name_is_no_change(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=tmp_path, check=True)

    for name in ("café.csv", 'a "b" -> c.txt', "old.txt"):
        (tmp_path / name).write_text(f"{name}\n" * 9, encoding="utf-8")
    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    (tmp_path / "café.csv").write_text("changed", encoding="utf-8")
    (tmp_path / 'a "b" -> c.txt').write_text("changed", encoding="utf-8")
    git("mv", "old.txt", "new name.txt")
    told: list[str] = []
    _tell_left_out(tmp_path, told.append, take_params=False)
    start, _, names = told[0].partition(": ")
    assert start == "not in the worktree, since they are not committed"
    assert sorted(names.split(", ")) == ['a "b" -> c.txt', "café.csv", "new name.txt"]
