"""Each command that writes, stopped at moments spread over its time, then given again: what it leaves when undisturbed.

The stages are in test_each_stage.py. Not part of `make test`: `make torture`.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from lexmill.base.storage import sha256_folder
from tests.e2e.conftest import Project
from tests.faults.conftest import Case, begin, copied
from tests.faults.outcome import assert_nothing_held, client_of, contents, outcome, registry
from tests.faults.test_each_stage import forget
from tests.faults.victim import Victim
from tests.support.package_index import PackageIndex

pytestmark = [pytest.mark.e2e, pytest.mark.torture, pytest.mark.timeout(1200)]

CLI = ("-m", "lexmill.cli")
WAYS = ("everything", "SIGTERM", "Ctrl-C")
PARTS = 3  # of a command's time
STOPPED = {0, 130, 143, -signal.SIGINT, -signal.SIGTERM, 252}  # the last is DVC's own word for Ctrl-C


@dataclass(frozen=True)
class Door:
    """A command.

    Attributes:
        before: makes the workspace such that it has something to do.
        result: what it has to leave.
        repair: what is given before it is given again.
    """

    command: tuple[str, ...]
    before: Callable[[Project], object]
    result: Callable[[Project], Any]
    repair: tuple[str, ...] = ()


def unpublished(project: Project) -> None:
    """Without MLflow's database and files: it is made, and all is published into it."""
    for name in (".mlflow.db*", "mlflow.db*", "mlruns"):
        for path in project.root.glob(name):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def forgotten(project: Project) -> None:
    for stage in ("tokenizer@shakespeare_bpe", "evaluate@lstm", "report"):
        forget(project.root, stage)


def moved(project: Project) -> None:
    """A source whose newest version has to be asked for."""
    choices = json.loads((project.root.parent / "choices.json").read_text())
    own = [one for one in choices if "movie_reviews" not in one]
    source = "corpora.movie_reviews.source"
    project.lexmill("compose", "experiment=smoke", *own, f"{source}.version=latest", f"~{source}.sha256")
    project.git("add", "-A")
    project.git("commit", "-q", "--allow-empty", "-m", "the newest version")


def nothing(_: Project) -> None:
    """It has something to do anyway."""


def pinned(project: Project) -> object:
    return (project.root / "sources.lock.yaml").read_bytes()


def committed(project: Project) -> object:
    """The nights on the branch, and the files of the last; the order of stages in dvc.lock means nothing."""
    commits = project.git("log", "--format=%s", "HEAD..nightly").splitlines()
    files = [line for line in project.git("ls-tree", "-r", "nightly").splitlines() if not line.endswith("\tdvc.lock")]
    return commits, files, yaml.safe_load(project.git("show", "nightly:dvc.lock")), outcome(project)


def exported(project: Project) -> object:
    folder = project.root.parent / "exported"
    return sha256_folder(folder) if folder.is_dir() else None


def written(project: Project) -> object:
    names = ("params.yaml", "sources.lock.yaml")
    return [(project.root / name).read_bytes() for name in names]


def remote(project: Project) -> None:
    add = ("-m", "dvc", "remote", "add", "--local", "--default", "team", str(project.root.parent / "remote"))
    project.run(*add)


def pushed(project: Project) -> object:
    """The objects of the remote, each with the content that its name says."""
    folder = project.root.parent / "remote" / "files" / "md5"
    objects = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in objects:
        done = subprocess.run(["md5sum", path], check=True, capture_output=True, text=True)
        assert done.stdout.split()[0] == (path.parent.name + path.name).removesuffix(".dir")
    return [path.relative_to(folder).as_posix() for path in objects]


def champion(project: Project) -> object:
    return registry(client_of(project))


DOORS = {
    "the Prefect flow": Door(("-m", "flows", "run"), forgotten, outcome),
    "dvc repro": Door(("-m", "dvc", "repro", "-q"), forgotten, lambda project: contents(project.root)),
    "lexmill publish": Door((*CLI, "publish"), unpublished, champion),
    "lexmill refresh": Door((*CLI, "refresh"), moved, pinned),
    "lexmill nightly": Door((*CLI, "nightly"), moved, committed),
    "lexmill compose": Door((*CLI, "compose", "experiment=smoke", "training_seed=5"), nothing, written),
    "lexmill export": Door((*CLI, "export", "gpt", "../exported"), nothing, exported),
    "dvc push": Door(("-m", "dvc", "push", "-q"), remote, pushed, repair=(*CLI, "run")),
}


@dataclass(frozen=True)
class Undisturbed:
    """What a door leaves, and how long it takes."""

    seconds: float
    result: Any


@pytest.fixture(scope="module")
def undisturbed(
    project: Project, tmp_path_factory: pytest.TempPathFactory, package_index: tuple[PackageIndex, list[str]]
) -> Callable[[str], Undisturbed]:
    """Each door once."""
    known: dict[str, Undisturbed] = {}

    def find(name: str) -> Undisturbed:
        if name not in known:
            copy = prepared(name, project, tmp_path_factory.mktemp("undisturbed"), package_index)
            begun = time.monotonic()
            copy.run(*DOORS[name].command)
            known[name] = Undisturbed(time.monotonic() - begun, DOORS[name].result(copy))
        return known[name]

    return find


def prepared(name: str, project: Project, folder: Path, index: tuple[PackageIndex, list[str]]) -> Project:
    copy = copied(project, folder / "a project", index[0])
    (folder / "choices.json").write_text(json.dumps(index[1]))
    DOORS[name].before(copy)
    return copy


@pytest.fixture
def case(
    request: pytest.FixtureRequest, project: Project, tmp_path: Path, package_index: tuple[PackageIndex, list[str]]
) -> Iterator[Case]:
    copy = prepared(request.getfixturevalue("door"), project, tmp_path, package_index)
    yield from begin(request, project, copy)


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("door", DOORS)
def test_stopped_and_given_again(
    door: str, how: str, part: int, case: Case, undisturbed: Callable[[str], Undisturbed]
) -> None:
    wanted = undisturbed(door)
    stopped = Victim(case.project, *DOORS[door].command)
    moment = case.dice.uniform(part, part + 1) / PARTS * wanted.seconds
    time.sleep(moment)
    struck = stopped.stop(how)
    case.did(f"{door}, {how}", struck)
    print(f"{door}, {moment:.2f} of {wanted.seconds:.2f} s, {how}: {struck}")
    code = stopped.wait_until_gone()
    assert not struck or how == "everything" or code in STOPPED, stopped.said()
    assert "Traceback" not in stopped.said()
    if repair := DOORS[door].repair:
        case.project.run(*repair)
    if door == "lexmill export" and exported(case.project) == wanted.result:
        return  # it was done before the signal, and refuses to write over a folder
    again = Victim(case.project, *DOORS[door].command)
    assert again.wait_until_gone(600) == 0, f"{stopped.said()}\n{again.said()}"
    assert DOORS[door].result(case.project) == wanted.result, again.said()
    assert_nothing_held(case.project, stopped, again)
