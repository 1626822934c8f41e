"""All that waits in a workspace reaches the store once: through failures of every call, kills, senders side by side."""

from __future__ import annotations

import json
import shutil
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from mlflow import MlflowClient
from mlflow.entities import Run

from lexmill.base import checkout, storage
from lexmill.base.errors import LexmillError, RetryableError
from lexmill.base.workspace import TOKEN_VARIABLE
from lexmill.runner.graph import Plan, Stage
from lexmill.runner.record import RunRecord
from lexmill.runner.supervised import Outcome
from lexmill.tracking import database, points, runs, spool, store, view
from lexmill.tracking.finding import FINGERPRINT, find
from lexmill.tracking.spool import Sending

from .conftest import Server
from .test_points import client_of, file_of, found, losses, train

URI = "sqlite:///mlflow.db"
FIRST, SECOND = "a" * 32, "b" * 32
PREPARED = {"documents": 7, "splits": {"train": {"records": 5}}}


def write_lock(root: Path, **md5: str) -> None:
    """dvc.lock after a run: each stage read its code and one folder."""
    stages = {}
    for name in ("prepare@plays", "train@gpt", "evaluate@gpt"):
        group = name.partition("@")[0]
        read = {"path": f"artifacts/in-{group}", "hash": "md5", "md5": md5.get(group, "0" * 32) + ".dir", "size": 9}
        code = {"path": f"pipeline/lexmill/stages/{group}.py", "hash": "md5", "md5": "1" * 32, "size": 5}
        stages[name] = {"cmd": f"python -m lexmill.stages.{group}", "deps": [read, code]}
    text = yaml.safe_dump({"schema": "2.0", "stages": stages}, sort_keys=False)
    (root / "dvc.lock").write_text(text, encoding="utf-8")


def run_pipeline(
    root: Path, token: str, states: dict[str, str], *, code: int | None = 0, experiment: str = "t"
) -> Path:
    """The record of a run in which these stages ended so, as the runner leaves it; others were unchanged."""
    everything = ("prepare@plays", "train@gpt", "evaluate@gpt")
    plan = Plan(tuple(Stage(name, (), ("input x modified",) if name in states else ()) for name in everything))
    storage.write_json(root / "metrics" / "prepare" / "plays.json", PREPARED)
    storage.write_json(root / "metrics" / "train" / "gpt.json", {"train_loss": 1.5})
    record = RunRecord.start(root, token, "lexmill run", "run", plan, experiment=experiment)
    for name, state in states.items():
        record.begin(name, "input x modified")
        if state != "running":
            failed = state == "failed"
            record.stage(Outcome(name, state, int(failed), 2.5, "no\nspace" if failed else ""))  # type: ignore[arg-type]
    record.end(code)
    return record.path


def run_of_model(root: Path) -> spool.RunOfModel:
    def found(client: MlflowClient, experiment: str, name: str) -> str | None:
        weights = points.weights_of(points.file_of("train", name, root))
        run = find(client, experiment, {points.WEIGHTS: weights}) if weights else None
        return None if run is None else run.info.run_id

    return found


def send(root: Path, uri: str = URI, said: list[str] | None = None, seconds: float | None = None) -> spool.Waiting:
    tell = (said if said is not None else []).append
    return spool.send(Sending(root, uri, "t", run_of_model(root), tell, seconds))


def trained(root: Path, token: str, monkeypatch: pytest.MonkeyPatch, training: str = "train-gpt-0123") -> None:
    """Four steps of the model by a stage of this run, to its end."""
    monkeypatch.setenv(TOKEN_VARIABLE, token)
    watch = train(root, 1, 4, training)
    (root / "model.safetensors").write_bytes(training.encode())
    watch.made(root / "model.safetensors")
    watch.close()


def all_runs(root: Path, experiment: str = "t") -> dict[str, Run]:
    """The runs of an experiment by name; none has a namesake."""
    client = client_of(root)
    entry = client.get_experiment_by_name(experiment)
    assert entry is not None
    listed = list(client.search_runs([entry.experiment_id]))
    names = [str(run.info.run_name) for run in listed]
    assert len(set(names)) == len(names), names
    return {name: client.get_run(run.info.run_id) for name, run in zip(names, listed, strict=True)}


def inputs_of(run: Run) -> list[tuple[str, str]]:
    assert run.inputs is not None
    return [(one.dataset.name, one.dataset.digest) for one in run.inputs.dataset_inputs]


def files_of(store_root: Path, run: Run) -> list[str]:
    """The artifacts of a run, wherever its store keeps them."""
    return [path.name for path in store_root.rglob(f"{run.info.run_id}/artifacts/**/*") if path.is_file()]


def assert_all_there_once(root: Path, store_root: Path, experiment: str) -> None:
    """What `spool_of` made, each point once, whatever was in between."""
    there = all_runs(store_root, experiment)
    (parent,) = (run for run in there.values() if runs.RUN in run.data.tags)
    assert set(there) == {parent.info.run_name, "prepare@plays", "gpt"}
    assert {run.info.status for run in there.values()} == {"FINISHED"}
    for run in there.values():
        assert set(found(store_root, run.info.run_id).values()) <= {1}, run.info.run_name
    assert losses(store_root, there["gpt"].info.run_id) == [(step, 5 / step) for step in range(1, 5)]
    assert there["prepare@plays"].data.metrics["splits/train.records"] == 5
    for name in ("prepare@plays", "gpt"):
        assert there[name].data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert there["gpt"].data.metrics["stages/evaluate/seconds"] == 2.5
    assert parent.data.metrics["stages/ran"] == 3
    assert files_of(store_root, parent) == ["stages.json"]
    assert files_of(store_root, there["gpt"]) == ["step-00000004.txt"]
    assert not spool.waiting(root)


def spool_of(root: Path, experiment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write_lock(root)
    trained(root, FIRST, monkeypatch)
    states = dict.fromkeys(("prepare@plays", "train@gpt", "evaluate@gpt"), "ran")
    run_pipeline(root, FIRST, states, experiment=experiment)


def test_a_run_is_a_parent_and_what_ran_are_its_children(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkout, "state", lambda _: checkout.State("c" * 40, dirty=True))
    spool_of(root, "t", monkeypatch)
    said: list[str] = []
    send(root, said=said)
    assert_all_there_once(root, root, "t")
    there = all_runs(root)
    name = runs.name_of(runs.read(runs.files(root)[0]) or {})
    assert said == ["gpt: 15 points of its training", f"{name}: the run with 3 stages"]
    parent, prepare, gpt = there[name], there["prepare@plays"], there["gpt"]
    assert name.startswith("t 20")
    assert parent.data.tags["lexmill.run"] == FIRST
    for run in (parent, prepare):
        assert run.data.tags["mlflow.source.git.commit"] == "c" * 40
        assert run.data.tags["lexmill.git_dirty"] == "true"
    assert len(prepare.data.tags["lexmill.stage_fingerprint"]) == 64
    assert parent.data.tags["lexmill.dvc_lock"] == checkout.dvc_lock_digest(root)
    assert "[prepare@plays](#/experiments/" in parent.data.tags["mlflow.note.content"]
    assert parent.data.metrics["seconds/prepare.plays"] == 2.5
    tags = prepare.data.tags
    assert (tags["lexmill.stage"], tags["lexmill.state"], tags["lexmill.why"]) == (
        "prepare@plays",
        "ran",
        "input x modified",
    )
    assert prepare.data.metrics | {"seconds": 0} == {
        "seconds": 0,
        "tries": 1,
        "exit_code": 0,
        "documents": 7,
        "splits/train.records": 5,
    }
    assert inputs_of(prepare) == [("artifacts/in-prepare", "0" * 32 + ".dir")]  # code is reported by the commit
    assert gpt.data.tags["lexmill.stage"] == "train@gpt"
    assert gpt.data.metrics["train/train_loss"] == 1.5
    assert inputs_of(gpt) == [("artifacts/in-train", "0" * 32 + ".dir")]
    assert (runs.read(runs.files(root)[0]) or {})["parent_run_id"] == parent.info.run_id


def test_the_page_of_the_experiment_opens_with_the_models_alone(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MLflow's page folds what has a parent, unless another order than that by time is asked for."""
    spool_of(root, "t", monkeypatch)
    send(root)
    state = json.loads(view.state(["bits_per_byte"]))
    client = client_of(root)
    entry = client.get_experiment_by_name("t")
    assert entry is not None
    shown = client.search_runs([entry.experiment_id], state["searchFilter"], order_by=[f"{state['orderByKey']} DESC"])
    assert [run.info.run_name for run in shown] == ["gpt"]
    assert state["orderByKey"] not in ("", "attributes.start_time")
    assert state["selectedColumns"] == ["metrics.`test/bits_per_byte`", "metrics.`valid_loss`"]


def test_what_was_not_done_again_is_linked_to_what_made_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool_of(root, "t", monkeypatch)
    send(root)
    before = {name: run.info.run_id for name, run in all_runs(root).items()}
    run_pipeline(root, SECOND, {"prepare@plays": "restored"})
    first, second = runs.files(root)
    storage.write_json(second, {**storage.read_json(second), "started": "2030-01-02T03:04:05Z"})  # another name
    send(root)
    after = {name: run.info.run_id for name, run in all_runs(root).items()}
    assert len(after) == len(before) + 1
    stages = runs.RunCursor.read(second, SECOND).stages
    assert stages["prepare@plays"] == before["prepare@plays"]
    assert stages["train@gpt"] == stages["evaluate@gpt"] == before["gpt"]

    # In another clone, where no record tells, by the tag.
    for path in (first, runs.RunCursor.path(first), runs.RunCursor.path(second)):
        path.unlink()
    send(root)
    assert len(all_runs(root)) == len(after)
    assert runs.RunCursor.read(second, SECOND).stages == stages


def test_other_inputs_are_not_linked(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool_of(root, "t", monkeypatch)
    send(root)
    write_lock(root, prepare="9" * 32)
    path = run_pipeline(root, SECOND, {"train@gpt": "unchanged"})
    send(root)
    assert runs.RunCursor.read(path, SECOND).stages["prepare@plays"] == ""


def test_failures_and_kills_show_as_such(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage that failed, its training that never came to its first point, a run that was killed."""
    write_lock(root)
    run_pipeline(root, FIRST, {"prepare@plays": "failed", "train@gpt": "running"}, code=None)
    send(root)
    there = all_runs(root)
    (parent,) = (run for run in there.values() if runs.RUN in run.data.tags)
    assert parent.info.status == "KILLED"
    assert (there["prepare@plays"].info.status, there["train@gpt"].info.status) == ("FAILED", "KILLED")
    assert there["prepare@plays"].data.tags["lexmill.message"] == "no\nspace"
    assert "exit_code" not in there["train@gpt"].data.metrics


def test_a_training_that_failed_says_so_in_its_own_run(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, FIRST)
    train(root, 1, 3).close()
    write_lock(root)
    run_pipeline(root, FIRST, {"train@gpt": "failed"}, code=1)
    send(root)
    there = all_runs(root)
    assert there["gpt"].info.status == "FAILED"
    assert there["gpt"].data.metrics["stages/train/exit_code"] == 1
    assert len(there) == 2


def test_a_model_that_was_packaged_stays_finished_when_a_second_training_fails(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained(root, FIRST, monkeypatch)
    write_lock(root)
    send(root)
    client_of(root).set_tag(all_runs(root)["gpt"].info.run_id, FINGERPRINT, "f" * 64)
    run_pipeline(root, FIRST, {"train@gpt": "failed"}, code=1)
    send(root)
    there = all_runs(root)
    assert there["gpt"].info.status == "FINISHED"
    assert there["gpt"].data.metrics["stages/train/exit_code"] == 1


def test_whichever_call_is_lost_all_is_there_once(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every request in turn is done, and its answer is a 500."""
    number, failed = 0, True
    while failed:
        number += 1
        root, experiment = tmp_path / str(number), f"lost {number}"
        root.mkdir()
        spool_of(root, experiment, monkeypatch)
        server.answers(f"lose@{number}")
        try:
            send(root, server.uri)
            failed = False
        except LexmillError:
            server.answers("ok")
            send(root, server.uri)
        assert_all_there_once(root, server.root, experiment)
    assert number > 20


@pytest.mark.parametrize("seed", [1, 2])
def test_through_a_server_that_fails_at_random(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """It refuses with 401 or 500, or does it and says 500."""
    spool_of(tmp_path, f"chaos {seed}", monkeypatch)
    server.answers(f"chaos@{seed}")
    tries = 0
    while spool.waiting(tmp_path):
        tries += 1
        assert tries < 200
        try:
            send(tmp_path, server.uri)
        except LexmillError:
            continue
    assert tries > 1
    assert_all_there_once(tmp_path, server.root, f"chaos {seed}")


def test_a_server_that_hangs_is_left_in_time_and_what_it_did_is_found(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    spool_of(tmp_path, "hang", monkeypatch)
    for number in (3, 6, 9):
        server.answers(f"hang@{number}")
        with pytest.raises(RetryableError):
            send(tmp_path, server.uri)
    server.answers("ok")
    with pytest.raises(RetryableError, match="more than 0 s; `lexmill sync` sends the rest"):
        send(tmp_path, server.uri, seconds=0.0)
    send(tmp_path, server.uri)
    assert_all_there_once(tmp_path, server.root, "hang")


def test_all_trainings_are_sent_also_those_whose_file_another_took(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for training in ("train-gpt-1", "train-gpt-2", "train-gpt-3"):
        trained(root, "", monkeypatch, training)
    assert len(spool.waiting(root).points) == 3
    said: list[str] = []
    send(root, said=said)
    assert said == ["gpt: 15 points of its training"] * 3
    client = client_of(root)
    listed = client.search_runs([client.get_experiment_by_name("t").experiment_id])  # type: ignore[union-attr]
    tags = Counter(run.data.tags[points.TRAINING] for run in listed)
    assert tags == {"train-gpt-1": 1, "train-gpt-2": 1, "train-gpt-3": 1}
    assert {run.info.status for run in listed} == {"FINISHED"}
    assert [path.name for path in (root / spool.FOLDER).glob("*.jsonl")] == ["train-gpt.jsonl"]
    assert not spool.waiting(root)


def test_a_training_whose_points_went_to_another_store_is_sent_to_this_one_too(
    root: Path, empty_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The settings name another store between the training's end and that of its run."""
    spool_of(root, "t", monkeypatch)
    send(root)
    (record,) = runs.files(root)
    runs.RunCursor.path(record).unlink()
    other = root / "other"
    shutil.copytree(empty_store, other)
    send(root, f"sqlite:///{other}/mlflow.db")
    assert_all_there_once(root, other, "t")


def test_a_training_that_goes_on_is_left_to_its_own_process(root: Path) -> None:
    train(root, 1, 3)
    with database.locked(points.lock_of(file_of(root))):
        waits = spool.waiting(root)
        assert not waits
        assert waits.running == ["train-gpt: its training is sending it"]


def test_a_file_that_is_damaged_is_left_and_said_and_holds_nothing_else_up(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool_of(root, "t", monkeypatch)
    (root / spool.FOLDER / "train-lstm.jsonl").write_bytes(b'{"kind": "training"\n\0\0\0\n')
    runs.RunCursor.path(runs.files(root)[0]).write_text("{", encoding="utf-8")
    (root / runs.FOLDER / "20200101T000000Z-00000000.json").write_text("[1", encoding="utf-8")
    left = send(root)
    assert_all_there_once(root, root, "t")
    (line,) = left.running
    assert line.endswith("train-lstm.jsonl: not the points of a training; move it away")


def test_two_senders_side_by_side_send_each_thing_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool_of(root, "t", monkeypatch)
    with store.opened(URI, root):  # imports are not for threads
        pass
    both = [threading.Thread(target=send, args=(root,)) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert_all_there_once(root, root, "t")


def test_the_parent_is_made_once_by_all_who_look_for_it(root: Path) -> None:
    """The senders of two trainings and the end of the run before them, all at the same moment."""
    path = run_pipeline(root, FIRST, {"prepare@plays": "ran"})
    with store.opened(URI, root) as client:
        experiment = store.experiment_id(client, "t", store.sqlite_path(URI, root))
        made: list[str] = []
        start = threading.Barrier(4)

        def look() -> None:
            start.wait()
            made.append(runs.parent(client, experiment, path))

        threads = [threading.Thread(target=look) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(made)) == 1
        assert len(client.search_runs([experiment])) == 1
        client.delete_run(made[0])
        assert runs.parent(client, experiment, path) != made[0]


def test_a_run_that_a_slow_server_made_after_we_gave_up_is_deleted(root: Path) -> None:
    with store.opened(URI, root) as client:
        experiment = store.experiment_id(client, "t", store.sqlite_path(URI, root))
        tags: dict[str, Any] = {"x": "1"}
        twins = [client.create_run(experiment, start_time=5, tags=tags).info.run_id for _ in range(2)]
        client.log_metric(twins[1], "m", 1.0)
        assert find(client, experiment, tags).info.run_id == twins[1]  # type: ignore[union-attr]
        assert [run.info.run_id for run in client.search_runs([experiment])] == [twins[1]]
        assert find(client, experiment, {"x": "2"}) is None


def test_old_records_are_forgotten_once_they_are_sent(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "_KEPT_RECORDS", 1)
    first = run_pipeline(root, FIRST, {"prepare@plays": "ran"})
    send(root)
    second = run_pipeline(root, SECOND, {"prepare@plays": "ran"})
    send(root)
    assert runs.files(root) == [max(first, second)]
    assert not list(first.parent.glob(f"{first.stem}*")) or max(first, second) == first
