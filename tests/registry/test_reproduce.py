"""How a version is made again from its commit: the script, the card, and what they say of changes."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from lexmill.base import layout, storage
from lexmill.params import Params
from lexmill.registry import package
from lexmill.registry.reproduce import Recipe, recipe

from .conftest import make


def git(where: Path, *arguments: str) -> str:
    who = {"GIT_AUTHOR_NAME": "test", "GIT_AUTHOR_EMAIL": "test@localhost"}
    who |= {"GIT_COMMITTER_NAME": "test", "GIT_COMMITTER_EMAIL": "test@localhost"}
    done = subprocess.run(
        ["git", *arguments], cwd=where, env=os.environ | who, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    where = tmp_path / "a checkout"
    (where / "pipeline").mkdir(parents=True)
    for name in ("params.yaml", "sources.lock.yaml", "dvc.lock", "pipeline/code.py"):
        storage.write_text(where / name, "first\n")
    git(where, "init", "-q")
    git(where, "add", "-A")
    git(where, "commit", "-qm", "first")
    return where


def described(params: Params, root: Path, **source: Any) -> dict[str, Any]:
    make(params, root, "en_de")
    description = package.read(package.write(params, "en_de", root))
    description["params"]["corpus"]["source"] = source or {"kind": "package", "name": "homeassistant"}
    return description


def made(params: Params, checkout: Path, tmp_path: Path, **source: Any) -> Recipe:
    return recipe(described(params, tmp_path / "made", **source), "run7", 1, checkout)


def test_a_clean_commit_is_enough(params: Params, checkout: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("LEXMILL_EXECUTION", "local")
    git(checkout, "remote", "add", "origin", "https://me:secret@example.org/team/lexmill.git")
    storage.write_text(checkout / "dvc.lock", "what a run writes\n")
    storage.write_text(checkout / "notes.txt", "no code\n")
    found = made(params, checkout, tmp_path)
    assert found.script.splitlines()[3:] == [
        "git clone https://example.org/team/lexmill.git lexmill-en_de",
        "cd lexmill-en_de",
        f"git checkout {git(checkout, 'rev-parse', 'HEAD')}",
        "make setup",
        ". .venv/bin/activate",
        "LEXMILL_EXECUTION=local dvc repro register@en_de",
        f"grep -q {package.read(tmp_path / 'made' / layout.package('en_de'))['fingerprint']}"
        " artifacts/packages/en_de/package.json && echo 'the same model, to the bit'",
    ]
    assert (found.changes, found.diff_sha256, found.taken) == ((), "", ())
    assert "To the bit on the same kind of machine, with one thread" in found.section
    assert "secret" not in found.script + found.section
    assert found.tags()["lexmill.reproduce"].startswith("git clone https://example.org/team/lexmill.git")
    assert len(found.description("x" * 9000)) <= 5000


@pytest.mark.parametrize(
    ("remote", "shown"),
    [
        ("https://secret@example.org/team/lexmill.git", "https://example.org/team/lexmill.git"),
        ("ftp://me:secret@example.org/lexmill.git", "ftp://example.org/lexmill.git"),
        ("ssh://git:secret@example.org:22/lexmill.git", "ssh://git@example.org:22/lexmill.git"),
        ("ssh://git@example.org/lexmill.git", "ssh://git@example.org/lexmill.git"),
        ("git@example.org:team/lexmill.git", "git@example.org:team/lexmill.git"),
        ("/srv/team#1/lexmill.git", "'/srv/team#1/lexmill.git'"),
    ],
)
def test_the_remote_is_named_without_its_password(
    params: Params, checkout: Path, tmp_path: Path, remote: str, shown: str
) -> None:
    git(checkout, "remote", "add", "origin", remote)
    assert f"git clone {shown} lexmill-en_de\n" in made(params, checkout, tmp_path).script


def test_changes_are_named_with_a_hash(params: Params, checkout: Path, tmp_path: Path) -> None:
    storage.write_text(checkout / "pipeline/code.py", "second\n")
    storage.write_text(checkout / "pipeline/new.py", "new\n")
    found = made(params, checkout, tmp_path)
    assert found.changes == ("pipeline/code.py", "pipeline/new.py")
    assert "not committed (pipeline/code.py, pipeline/new.py; sha256 of the difference " in found.section
    assert found.tags()["lexmill.git_diff_sha256"] == found.diff_sha256
    assert all(line.startswith("#") for line in found.script.splitlines() if "not committed" in line)
    storage.write_text(checkout / "pipeline/new.py", "newer\n")
    assert made(params, checkout, tmp_path).diff_sha256 != found.diff_sha256


@pytest.mark.parametrize("name", ["params.yaml", "sources.lock.yaml"])
def test_changed_choices_and_pins_are_taken_from_the_run(
    params: Params, checkout: Path, tmp_path: Path, name: str
) -> None:
    storage.write_text(checkout / name, "second\n")
    found = made(params, checkout, tmp_path)
    assert (found.taken, found.changes) == ((name,), ())
    lines = [line for line in found.script.splitlines() if "artifacts download" in line]
    assert lines == [f"mlflow artifacts download --run-id run7 --artifact-path {name} --dst-path ."]


def test_without_git_and_with_files_of_the_users_own(params: Params, tmp_path: Path) -> None:
    found = recipe(described(params, tmp_path, kind="file", paths=["mine.csv"]), "run7", 0, tmp_path / "nowhere")
    assert "git clone" not in found.script
    assert "artifact-path params.yaml" in found.script
    assert "made of the user's own files" in found.section
    assert "mine.csv" in found.section
    assert "with all its cores" in found.section
