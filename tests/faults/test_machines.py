"""Odd machines: a disk that fills or turns read-only, clocks that jump, two machines with one remote.

Not part of `make test`: `make torture`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lexmill.base import storage
from tests.e2e.conftest import ROOT, Project
from tests.faults.conftest import Case, copied
from tests.faults.outcome import assert_nothing_held, assert_runs_closed, client_of, contents, outcome
from tests.faults.test_each_stage import forget
from tests.faults.victim import Victim
from tests.support.package_index import PackageIndex

pytestmark = [pytest.mark.e2e, pytest.mark.torture, pytest.mark.timeout(1800)]

RUN = ("-m", "lexmill.cli", "run")
STAGES = ("fetch@movie_reviews", "tokenizer@shakespeare_bpe", "train@gpt", "evaluate@lstm", "register@en_de")
NIGHT = ("-m", "lexmill.cli", "nightly", "--push", "origin")
CLOCK = Path(__file__).parent / "jumping_clock"
DAY = 86_400.0
LONGEST = 15.0  # seconds of the run in which the disk is harmed


@pytest.mark.parametrize(("how", "part"), [("read-only", 0), *(("full", part) for part in range(8))])
def test_a_disk_that_is_full_or_read_only(
    how: str, part: int, finished: Case, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A disk that fills in the middle of a run; one that is read-only from its start, which open files would hinder."""
    for stage in STAGES:
        forget(finished.root, stage)
    place = tmp_path_factory.mktemp("disk")
    seconds = finished.dice.uniform(part, part + 1) / 8 * LONGEST
    index = {key: value for key, value in finished.project.environment.items() if key.startswith(("PIP_", "npm_"))}
    own = ["unshare", "--user", "--map-root-user", "--mount", sys.executable, "-m", "tests.faults.own_disk"]
    done = subprocess.run(
        [*own, str(finished.root.parent), str(place), how, str(seconds)],
        cwd=ROOT,
        env=finished.project.environment | {"OWN_DISK_INDEX": json.dumps(index)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    finished.did(f"a disk that is {how}", not found["late"])
    print(f"{how} after {seconds:.1f} s", *found["said"], sep="\n")
    assert found["codes"][0] in ({0, 75} if how == "full" else {0, 2, 75})
    assert found["codes"][1] == 0
    assert "Traceback" not in "".join(found["said"])
    assert found["outcome"] == json.loads(json.dumps(outcome(finished.undisturbed)))


@pytest.mark.parametrize("turn", range(6))
def test_clocks_that_jump(turn: int, finished: Case) -> None:
    """By days, back and forth, every half second of a run; of all its processes at once."""
    clock = finished.root.parent / "clock"
    clock.write_text("0")
    for stage in STAGES:
        forget(finished.root, stage)
    path = f"{finished.project.environment['PYTHONPATH']}{os.pathsep}{CLOCK}"
    run = Victim(finished.project, *RUN, PYTHONPATH=path, JUMPING_CLOCK=str(clock))
    jumps = 0
    while run.running:
        storage.write_text(clock, f"{finished.dice.uniform(-400, 400) * DAY:.3f}")
        jumps += 1
        time.sleep(0.5)
    assert run.wait_until_gone() == 0, run.said()
    finished.did("clocks that jump", jumps > 4)
    again = Victim(finished.project, *RUN)
    assert again.wait_until_gone(600) == 0, again.said()
    assert outcome(finished.project) == outcome(finished.undisturbed), run.said()
    assert_runs_closed(client_of(finished.project), finished.root)
    assert_nothing_held(finished.project, run, again)


def machine(project: Project, folder: Path, index: PackageIndex, origin: Path, remote: Path) -> Project:
    """A copy of a workspace with shared remotes of git and DVC."""
    copy = copied(project, folder / "a project", index)
    copy.git("remote", "add", "origin", str(origin))
    copy.run("-m", "dvc", "remote", "add", "--local", "--default", "team", str(remote))
    return copy


@pytest.mark.parametrize("turn", range(6))
def test_two_machines_with_one_remote(
    turn: int, finished: Case, tmp_path_factory: pytest.TempPathFactory, package_index: tuple[PackageIndex, list[str]]
) -> None:
    """Nights of both at once, one of them killed; then both again: the branch has results that anybody can fetch."""
    folder = tmp_path_factory.mktemp("machines")
    origin, remote = folder / "origin.git", folder / "remote"
    subprocess.run(["git", "init", "-q", "--bare", str(origin)], check=True)
    finished.project.git("checkout", "-q", "-b", "work")
    machines = [machine(finished.project, folder / name, package_index[0], origin, remote) for name in ("one", "two")]
    for one in machines:
        for stage in STAGES:
            forget(one.root, stage)
    nights = [Victim(one, *NIGHT) for one in machines]
    time.sleep(finished.dice.uniform(0, 25))
    struck = nights[turn % 2].stop("everything")
    finished.did("two machines with one remote, everything", struck)
    codes = [night.wait_until_gone(600) for night in nights]
    said = "\n".join(night.said() for night in nights)
    # Who comes second is told to fetch the first one's commits.
    assert codes[1 - turn % 2] in {0, 2}, said
    assert "Traceback" not in said
    for one in machines:
        again = Victim(one, *NIGHT)
        code = again.wait_until_gone(600)
        assert code == 0 or (code == 2 and "fetch them" in again.said()), again.said()
        assert contents(one.root) == contents(finished.undisturbed.root)
        assert_nothing_held(one, again)

    third = folder / "third" / "a project"
    subprocess.run(["git", "clone", "-q", "--branch", "nightly", str(origin), str(third)], check=True)
    reader = Project(third, package_index[0].environment())
    reader.run("-m", "dvc", "remote", "add", "--local", "--default", "team", str(remote))
    reader.run("-m", "dvc", "pull", "-q")
    assert contents(third) == contents(finished.undisturbed.root)
    assert "unchanged, nothing to run" in reader.run("-m", "lexmill.cli", "run").stderr
