"""`kill -9`, Ctrl-C or SIGTERM at random moments of a run of the whole DAG, one in each ninth of it, then once more to
its end: the result of an undisturbed run, in the workspace, in the registry and in MLflow.

Not part of `make test`: `make torture`.
"""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from lexmill.base import workspace
from lexmill.runner.record import records
from lexmill.tracking import spool
from tests.faults.conftest import Case
from tests.faults.outcome import (
    assert_nothing_held,
    assert_runs_closed,
    client_of,
    doubled,
    left_behind,
    models,
    outcome,
    outputs,
    points,
)
from tests.faults.victim import ASKED, KILLED, Victim

pytestmark = [pytest.mark.e2e, pytest.mark.torture, pytest.mark.timeout(3600)]

WAYS = (*KILLED, *ASKED)  # each once in seven rounds
ROUNDS = 8
LONGEST_WAIT = 4.0  # seconds from the moment chosen to the kill, at most
DOORS = {"lexmill run": ("-m", "lexmill.cli", "run"), "the Prefect flow": ("-m", "flows", "run")}
MODELS = {"en_de", "gpt", "lstm", "sentiment"}


def recorded(root: Path) -> int:
    """How many stages dvc.lock holds, whoever is writing it just now."""
    try:
        lines = (root / "dvc.lock").read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        return 0
    return sum(line.startswith("  ") and line[2:3].isalpha() for line in lines)


@pytest.mark.parametrize("time_of_many", range(2))
@pytest.mark.parametrize("door", DOORS)
def test_stopped_at_random_moments_it_ends_as_if_nothing_had_happened(
    door: str, time_of_many: int, emptied: Case
) -> None:
    root, command, dice = emptied.root, DOORS[door], emptied.dice
    ways = dice.sample(WAYS, len(WAYS))
    stages = len(outputs(emptied.undisturbed.root))
    begun: list[Victim] = []
    for turn in range(ROUNDS):
        how, wait = ways[turn % len(ways)], dice.uniform(0, LONGEST_WAIT)
        done = dice.randrange(turn * stages // (ROUNDS + 1), (turn + 1) * stages // (ROUNDS + 1))
        run = Victim(emptied.project, *command)
        begun.append(run)
        while run.running and recorded(root) < done:
            time.sleep(0.05)
        time.sleep(wait)
        struck = run.stop(how)
        emptied.did(f"a whole run by {door}, {how}", struck)
        print(f"round {turn + 1}: {recorded(root)} stages done, {how}: {struck}", flush=True)
        if how not in ("everything", "runner", *ASKED):
            # The command goes on with what does not need the killed process, until it is interrupted.
            time.sleep(wait)
            if run.running:
                run.process.send_signal(signal.SIGINT)
        run.wait_until_gone()
        with workspace.run_lock(root=root, wait_seconds=0):
            pass
    assert len(emptied.done) >= ROUNDS // 2, "it was over too soon"

    last = Victim(emptied.project, *command)
    assert last.wait_until_gone(900) == 0, last.said()
    assert records(root)[-1].code == 0
    assert outcome(emptied.project) == outcome(emptied.undisturbed), last.said()
    emptied.project.lexmill("sync")
    assert not spool.waiting(root)

    ours, theirs = client_of(emptied.project), client_of(emptied.undisturbed)
    assert_runs_closed(ours, root)
    tortured, undisturbed = models(ours), models(theirs)
    assert set(tortured) == set(undisturbed) == MODELS
    for name in MODELS:
        assert points(ours, tortured[name]) == points(theirs, undisturbed[name]), name
        assert doubled(ours, tortured[name]) == []

    assert left_behind(root) == left_behind(emptied.undisturbed.root)
    assert_nothing_held(emptied.project, *begun, last)
    assert "unchanged, nothing to run" in emptied.project.run("-m", "lexmill.cli", "run").stderr
    assert json.loads(emptied.project.run("-m", "dvc", "status", "--json").stdout) == {}
