"""`lexmill sync`: what it says, and that it says it where the store does not answer."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
import yaml

from lexmill.base import storage
from lexmill.base.errors import EXIT_RETRY, RetryableError, UserError
from lexmill.commands.sync import send_after_run, sync
from lexmill.compute.execution import Execution
from lexmill.params import parse
from lexmill.runner.record import records
from lexmill.tracking import points, runs

from ..registry.plain import plain_params
from .test_points import client_of, train
from .test_spool import FIRST, SECOND, all_runs, run_pipeline, spool_of

NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def project(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with a store, a finished training and a run."""
    (root / "conf" / "execution").mkdir(parents=True)
    settings(root)
    (root / "params.yaml").write_text(yaml.safe_dump({**plain_params(), "experiment": "t"}), encoding="utf-8")
    spool_of(root, "t", monkeypatch)
    monkeypatch.chdir(root)
    return root


def settings(root: Path, **choices: object) -> None:
    (root / "conf" / "execution" / "local.yaml").write_text(yaml.safe_dump(choices), encoding="utf-8")


def test_it_says_what_was_sent_and_then_that_nothing_waits(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    sync(project)
    message = capfd.readouterr().err
    assert "sent to MLflow: gpt: 15 points of its training" in message
    assert "the run with 3 stages" in message
    assert message.endswith("nothing waits\n")
    sync(project)
    assert capfd.readouterr().err == "nothing waits\n"


def test_a_store_that_does_not_answer_is_worth_another_try(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    settings(project, tracking_uri=NOWHERE)
    with pytest.raises(RetryableError, match="does not answer") as failed:
        sync(project)
    assert failed.value.exit_code == EXIT_RETRY
    assert capfd.readouterr().err == "not sent: 1 training and 1 run\n"
    settings(project)
    sync(project)
    assert len(all_runs(project)) == 3


def test_a_run_ends_well_without_its_store(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    said: list[str] = []
    send_after_run(parse(plain_params()), Execution(tracking_uri=NOWHERE), said.append, project)
    (line,) = said
    assert line.startswith("not all is in MLflow (1 training and 1 run wait): the tracking server http://127.0.0.1:9")
    send_after_run(parse(plain_params()), Execution(publish=False), said.append, project)
    assert len(said) == 1


def test_where_nothing_is_published_nothing_is_sent(project: Path) -> None:
    settings(project, publish=False)
    with pytest.raises(UserError, match="publish is false"):
        sync(project)


def test_what_goes_on_is_left_and_said(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = run_pipeline(project, SECOND, {"prepare@plays": "running"})
    storage.write_json(path, {**storage.read_json(path), "ended": None})
    sync(project)
    message = capfd.readouterr().err
    assert f"left: {runs.name_of(runs.read(path) or {})}: not ended yet" in message
    assert message.endswith("nothing else waits\n")


def test_a_killed_run_is_closed_and_sent_as_killed(project: Path) -> None:
    """Its process is gone: another that has its number now started later."""
    path = run_pipeline(project, SECOND, {"train@gpt": "running"})
    gone = {"ended": None, "code": None, "process_start": psutil.Process().create_time() - 100}
    storage.write_json(path, {**storage.read_json(path), **gone, "started": "2030-01-02T03:04:05Z"})
    path = path.rename(path.with_name(f"20300102T030405Z-{SECOND[:8]}.json"))
    sync(project)
    there = all_runs(project)
    assert records(project)[-1].ended is not None
    assert there[runs.name_of(runs.read(path) or {})].info.status == "KILLED"
    assert sum(run.data.tags.get(runs.RUN) == FIRST for run in there.values()) == 1


def test_a_training_that_was_killed_is_sent_too(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By plain `dvc repro`, so no run tells of it; it took the place of the finished one."""
    monkeypatch.setenv("LEXMILL_RUN", "")
    train(project, 1, 3, "train-gpt-other").close()
    sync(project)
    client = client_of(project)
    entry = client.get_experiment_by_name("t")
    assert entry is not None
    listed = client.search_runs([entry.experiment_id], f"tags.`{points.TRAINING}` LIKE '%'")
    assert {run.data.tags[points.TRAINING]: run.info.status for run in listed} == {
        "train-gpt-0123": "FINISHED",
        "train-gpt-other": "KILLED",
    }
