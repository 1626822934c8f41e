"""A file of the workspace cut, changed or removed; then a run: the undisturbed result, or a sentence that leads there.

Some of the cases are part of `make test`, all of them of `make torture`.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.conftest import Case
from tests.faults.outcome import assert_nothing_held, outcome
from tests.faults.test_each_stage import forget
from tests.faults.victim import Victim

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

HASHES = "DVC's hashes of files"
RUN = ("-m", "lexmill.cli", "run")
# What is damaged, relative to the folder that holds workspace and home.
PLACES = {
    "an artifact": "a project/artifacts/**/*",
    "a metric or a report": "a project/[mr]e*/**/*",
    "dvc.lock": "a project/dvc.lock",
    "sources.lock.yaml": "a project/sources.lock.yaml",
    "code.json": "a project/code.json",
    "DVC's cache": "a project/.dvc/cache/files/**/*",
    "DVC's own state": "a project/.dvc/tmp/*",
    HASHES: "dvc-site/**/*",
    "a record of a run": "a project/.lexmill/runs/*",
    "points of a training": "a project/.lexmill/metrics/*",
    "a kept checkpoint": "a project/.lexmill/checkpoints/**/*",
    "MLflow's database": "a project/mlflow.db",
    "MLflow's files": "a project/mlruns/**/*",
}


def cut(path: Path, dice: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: dice.randrange(len(data))] if data else b"")


def flip(path: Path, dice: random.Random) -> None:
    """One bit."""
    data = bytearray(path.read_bytes() or b"\0")
    data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    path.write_bytes(data)


def noise(path: Path, dice: random.Random) -> None:
    """As many bytes, none of them right from some place on."""
    data = path.read_bytes()
    begin = dice.randrange(len(data)) if data else 0
    path.write_bytes(data[:begin] + dice.randbytes(len(data) - begin or 1))


def empty(path: Path, _: random.Random) -> None:
    path.write_bytes(b"")


def gone(path: Path, _: random.Random) -> None:
    path.unlink()


WAYS: dict[str, Callable[[Path, random.Random], None]] = {
    "cut": cut,
    "one bit": flip,
    "noise": noise,
    "empty": empty,
    "gone": gone,
}


def damage(case: Case, place: str, how: str) -> Path:
    """Harm one file of a place, in a workspace in which something that needs it is to be done."""
    root = case.root
    if place == "DVC's cache":
        shutil.rmtree(root / "artifacts")
    elif place == HASHES:
        case.project.run("-m", "dvc", "status", "-q")  # a copy has none yet
    elif place == "a kept checkpoint":
        forget_model(root)
    else:
        forget(root, case.dice.choice(("tokenizer@shakespeare_bpe", "train@lstm", "evaluate@gpt", "register@en_de")))
    found = sorted(path for path in root.parent.glob(PLACES[place]) if path.is_file())
    path = case.dice.choice(found)
    path.chmod(0o644)  # DVC's cache is read-only, which no accident respects
    WAYS[how](path, case.dice)
    case.did(f"{place}, {how}")
    print(f"{path.relative_to(root.parent)}: {how}")
    return path


def forget_model(root: Path) -> None:
    kept = root / ".lexmill" / "checkpoints"
    aside = root.parent / "checkpoints"
    shutil.copytree(kept, aside)
    forget(root, "train@en_de")
    shutil.rmtree(kept)
    shutil.copytree(aside, kept)


def assert_it_ends_well(case: Case, harmed: Path) -> None:
    run = Victim(case.project, *RUN)
    code = run.wait_until_gone(600)
    assert "Traceback" not in run.said(), run.said()
    if code:
        # The message names the file, and says what to do: here to move it away.
        assert code in {2, 75}, run.said()
        assert harmed.relative_to(case.root).as_posix() in run.said()
        print(run.said())
        harmed.rename(harmed.with_name(f"{harmed.name}.aside"))
        case.project.lexmill("doctor", "--fix")
        run = Victim(case.project, *RUN)
        assert run.wait_until_gone(600) == 0, run.said()
    assert outcome(case.project) == outcome(case.undisturbed), run.said()
    assert_nothing_held(case.project, run)


@pytest.mark.torture
@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("place", PLACES)
def test_each_place(place: str, how: str, finished: Case) -> None:
    assert_it_ends_well(finished, damage(finished, place, how))


def test_some_place(finished: Case) -> None:
    place, how = finished.dice.choice(list(PLACES)), finished.dice.choice(list(WAYS))
    assert_it_ends_well(finished, damage(finished, place, how))
