"""For every test: signals as a terminal has them, and the environment as it was found; what many folders share."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.made_packages import make_packages
from tests.support.once import made_once
from tests.support.order import Groups, rank
from tests.support.package_index import PackageIndex
from tests.support.small_project import SmallProject


def pytest_configure() -> None:
    """A background job of a shell inherits an ignored Ctrl-C; tests that send it need it back."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The workers of xdist take the files that last long first, and so end together."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: rank(item.path))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Groups | None:
    """`--dist loadfile` keeps groups of files together too."""
    return Groups(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture(autouse=True)
def _environment() -> Iterator[None]:
    """Commands called in this process quieten libraries by the environment; the next test must not see that."""
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a new MLflow database, to be copied: making one takes seconds."""
    from lexmill.tracking import store

    return made_once(tmp_path_factory, "empty-store", lambda folder: store.prepare("sqlite:///mlflow.db", folder))


@pytest.fixture(scope="session")
def package_index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[PackageIndex, list[str]]]:
    """An index on loopback that serves the made packages, and the choices that go with them."""
    folder = tmp_path_factory.mktemp("index")
    overrides = make_packages(folder)
    with PackageIndex(folder) as index:
        yield index, overrides


@pytest.fixture(scope="session")
def encoded(tmp_path_factory: pytest.TempPathFactory) -> SmallProject:
    """A small workspace up to its token shards, to be copied."""

    def make(folder: Path) -> None:
        SmallProject(folder / "a project").run("-m", "dvc", "repro", "-q", "encode")

    return SmallProject.found(made_once(tmp_path_factory, "encoded", make) / "a project")
