"""Each stage stopped while it runs, at a moment drawn from each half of its time; then the run again.

One of the cases is part of `make test`, all of them of `make torture`.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
import yaml

from lexmill.runner.record import records
from tests.e2e.conftest import ROOT
from tests.faults.conftest import Case
from tests.faults.outcome import assert_nothing_held, assert_runs_closed, client_of, outcome
from tests.faults.victim import Victim

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

GROUPS = tuple(yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"])
WAYS = ("stage", "dvc", "supervisor", "everything", "SIGTERM", "Ctrl-C")
HALVES = 2
RUN = ("-m", "lexmill.cli", "run")
SHORTEST = 0.5  # seconds of a stage that nobody timed


def items(root: Path, group: str) -> list[str]:
    """The stages of a group."""
    stages = yaml.safe_load((root / "dvc.lock").read_text(encoding="utf-8"))["stages"]
    return [name for name in stages if name.split("@")[0] == group]


def seconds(root: Path, stage: str) -> float:
    """How long it took when it last ran."""
    times = [one.seconds for run in records(root) for one in run.stages if one.name == stage]
    return max([SHORTEST, *times[-1:]])


def forget(root: Path, stage: str) -> None:
    """Remove what a stage made, and every trace of it that DVC could restore it from."""
    path = root / "dvc.lock"
    lock = yaml.safe_load(path.read_text(encoding="utf-8"))
    for output in lock["stages"].pop(stage).get("outs", []):
        made = root / output["path"]
        shutil.rmtree(made) if made.is_dir() else made.unlink()
        digest = output["md5"]
        (root / ".dvc" / "cache" / "files" / "md5" / digest[:2] / digest[2:]).unlink(missing_ok=True)
    path.write_text(yaml.safe_dump(lock, sort_keys=False), encoding="utf-8")
    shutil.rmtree(root / ".dvc" / "cache" / "runs", ignore_errors=True)
    for kept in (root / ".lexmill" / "checkpoints").glob(f"{stage.replace('@', '-')}-*"):
        shutil.rmtree(kept)  # a training would begin at its end


def stop_it(case: Case, stage: str, how: str, half: int) -> Victim:
    """Run a forgotten stage and stop it, where it did not end before."""
    moment = case.dice.uniform(half, half + 1) / HALVES * seconds(case.root, stage)
    forget(case.root, stage)
    run = Victim(case.project, *RUN)
    while run.running and not run.of_kind("stage"):
        time.sleep(0.02)
    time.sleep(moment)
    struck = run.stop(how)
    case.did(f"stage {stage.partition('@')[0]}, {how}", struck)
    print(f"{stage}, {moment:.2f} s after its start, {how}: {struck}")
    run.wait_until_gone()
    return run


def assert_undisturbed(case: Case, *stopped: Victim) -> None:
    """Run it again: the result of a run that nothing disturbed."""
    again = Victim(case.project, *RUN)
    assert again.wait_until_gone(600) == 0, again.said()
    assert outcome(case.project) == outcome(case.undisturbed), again.said()
    assert_runs_closed(client_of(case.project), case.root)
    assert_nothing_held(case.project, *stopped, again)


@pytest.mark.torture
@pytest.mark.parametrize("half", range(HALVES))
@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("group", GROUPS)
def test_each_stage(group: str, how: str, half: int, finished: Case) -> None:
    stage = finished.dice.choice(items(finished.root, group))
    assert_undisturbed(finished, stop_it(finished, stage, how, half))


def test_some_stage(finished: Case) -> None:
    how = finished.dice.choice(WAYS)
    stage = finished.dice.choice(items(finished.root, finished.dice.choice(GROUPS)))
    assert_undisturbed(finished, stop_it(finished, stage, how, finished.dice.randrange(HALVES)))
