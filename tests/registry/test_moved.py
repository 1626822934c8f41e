"""A workspace that was moved or copied works from its own files, says so once, and leaves the old place alone."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from lexmill.base import layout, storage
from lexmill.base.errors import UserError
from lexmill.compute.execution import Execution
from lexmill.params import Params
from lexmill.registry import use
from lexmill.tracking import store

from .conftest import publish_model

URI = "sqlite:///mlflow.db"
NAME = "mo[ved] é 100%"
NOTE = ".mlflow.db.place.json"


@pytest.fixture
def original(published: tuple[Path, list[str]], tmp_path: Path) -> Path:
    """A workspace whose addresses are of its present place."""
    where = tmp_path / "original"
    shutil.copytree(published[0], where)
    store.prepare(URI, where)
    return where


def addresses(root: Path) -> list[str]:
    """The addresses of files in the database, without those of MLflow's own experiment."""
    with closing(sqlite3.connect(root / "mlflow.db")) as connection:
        rows = [
            *connection.execute("SELECT artifact_location FROM experiments WHERE experiment_id <> 0"),
            *connection.execute("SELECT artifact_uri FROM runs"),
            *connection.execute("SELECT artifact_location FROM logged_models"),
            *connection.execute("SELECT storage_location FROM model_versions"),
        ]
    return [str(address) for (address,) in rows]


def without_packages(root: Path) -> Path:
    shutil.rmtree(root / layout.package(""))
    return root


def test_the_champion_is_loaded_from_the_moved_files(
    original: Path, params: Params, execution: Execution, capsys: pytest.CaptureFixture[str]
) -> None:
    moved = without_packages(original.rename(original.with_name(NAME)))
    capsys.readouterr()
    (answer,) = use.open_model("tickets", "classifier", params, execution, moved).predict(["my bill"])
    assert answer["label"] in ("billing", "other")
    said = f"mlflow.db was moved from {original}; the places of its files were corrected"
    assert capsys.readouterr().err.count(said) == 1
    found = addresses(moved)
    assert len(found) == 1 + 3 + 3 + 3
    assert all(address.startswith(f"{moved.as_uri()}/mlruns/") for address in found)
    store.prepare(URI, moved)
    assert said not in capsys.readouterr().err


def test_a_new_version_goes_to_the_new_place(original: Path, params: Params) -> None:
    moved = original.rename(original.with_name(NAME))
    publish_model(params, moved, "tickets", 0.9, 1)
    assert not original.exists()
    assert all(address.startswith(moved.as_uri()) for address in addresses(moved))


def test_a_copy_leaves_the_original_alone(original: Path, params: Params) -> None:
    copy = original.with_name("copy")
    shutil.copytree(original, copy)
    before = storage.sha256_folder(original)
    publish_model(params, copy, "tickets", 0.9, 1)
    assert storage.sha256_folder(original) == before


def test_a_database_of_an_older_lexmill_is_known_by_its_experiments(original: Path) -> None:
    moved = original.rename(original.with_name(NAME))
    (moved / NOTE).unlink()
    store.prepare(URI, moved)
    assert all(address.startswith(moved.as_uri()) for address in addresses(moved))


def test_a_database_whose_files_lie_elsewhere_is_left_alone(original: Path) -> None:
    moved = original.with_name("database only")
    moved.mkdir()
    for path in original.glob("*mlflow.db*"):
        if path.name != NOTE:
            shutil.copy(path, moved)
    store.prepare(URI, moved)
    assert all(address.startswith(original.as_uri()) for address in addresses(moved))


def test_another_name_of_the_same_folder_is_no_move(original: Path, capsys: pytest.CaptureFixture[str]) -> None:
    link = original.with_name("link")
    link.symlink_to(original)
    capsys.readouterr()
    store.prepare(URI, link)
    assert "moved" not in capsys.readouterr().err
    assert all(address.startswith(original.as_uri()) for address in addresses(original))


def test_files_that_did_not_come_along_are_named(original: Path, params: Params, execution: Execution) -> None:
    shutil.rmtree(without_packages(original) / "mlruns")
    with pytest.raises(UserError, match=r"the files of version 1 of 'tickets' are gone from .*mlruns"):
        use.open_model("tickets", "classifier", params, execution, original)
