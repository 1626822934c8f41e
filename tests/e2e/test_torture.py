"""`kill -9`, Ctrl-C or SIGTERM at random moments of `lexmill run`, one in each ninth of the DAG, then the same command
for the last: the result of an undisturbed run, in the workspace, in the registry and in MLflow.

Not part of `make test`: `make torture`, about ten minutes. A failure prints the seed; `LEXMILL_TORTURE=SEED` repeats
its choices (what runs just then depends on the machine).
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import psutil
import pytest
import yaml
from mlflow import MlflowClient
from mlflow.entities import Run

from lexmill.base import checkout, workspace
from lexmill.runner.record import records
from lexmill.tracking import runs, spool, store
from lexmill.tracking.finding import MODEL, PARENT
from tests.e2e.conftest import Project
from tests.support.package_index import PackageIndex

pytestmark = [pytest.mark.e2e, pytest.mark.torture, pytest.mark.timeout(3600)]

ASKED = {"Ctrl-C": signal.SIGINT, "SIGTERM": signal.SIGTERM}  # sent to the runner
VICTIMS = ("everything", "runner", "supervisor", "dvc", "stage", *ASKED)  # each once in seven rounds
ROUNDS = 8
LONGEST_WAIT = 4.0  # seconds from the moment chosen to the kill, at most
MARK = "LEXMILL_TORTURED"
CHECKPOINT_EVERY_STEP = "accelerator: cpu\nthreads: 1\ncheckpoint_seconds: 0\n"

MODELS = ("en_de", "gpt", "lstm", "sentiment")
ENDED = {"FINISHED", "FAILED", "KILLED"}
BY_THE_CLOCK = ("live/", "system/", "stages/")  # metrics that two equal trainings do not share


class Victim:
    """One `lexmill run` that can be found whole, wherever its processes went."""

    def __init__(self, project: Project) -> None:
        self.mark = uuid.uuid4().hex
        self.log = project.root.parent / "run.log"
        with open(self.log, "ab") as log:
            self.runner = subprocess.Popen(
                [sys.executable, "-m", "lexmill.cli", "run"],
                cwd=project.root,
                env=project.environment | {MARK: self.mark},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def processes(self) -> list[psutil.Process]:
        """What lives of the run: all processes that inherited its mark."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def of_kind(self, kind: str) -> list[psutil.Process]:
        """The processes of one kind: `everything`, or by their command line."""
        if kind == "everything":
            return self.processes()
        wanted = {
            "runner": "lexmill.cli",
            "supervisor": "lexmill.runner.supervisor",
            "dvc": "dvc",
            "stage": "lexmill.stages.",
        }[kind]
        return [process for process in self.processes() if _module(process).startswith(wanted)]

    def kill(self, kind: str) -> list[str]:
        """`kill -9` the processes of a kind, as soon as there are any, or ask the runner to end; gives whom."""
        if kind in ASKED:
            if self.runner.poll() is None:
                self.runner.send_signal(ASKED[kind])
                return ["the runner"]
            return []
        while self.runner.poll() is None:
            if victims := self.of_kind(kind):
                names = [_module(process) for process in victims]
                for process in victims:
                    try:
                        process.kill()
                    except psutil.NoSuchProcess:
                        continue
                return names
            time.sleep(0.02)
        return []

    def wait_until_gone(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while left := self.processes():
            assert time.monotonic() < deadline, f"still alive: {[_module(process) for process in left]}\n{self.said()}"
            time.sleep(0.1)
        self.runner.wait()

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")


def _module(process: psutil.Process) -> str:
    """`lexmill.stages.train gpt` of `python -m lexmill.stages.train gpt`; else empty."""
    try:
        words = process.cmdline()
    except psutil.Error:
        return ""
    return " ".join(words[2:]) if words[1:2] == ["-m"] else ""


@pytest.fixture
def emptied(project: Project, tmp_path: Path, package_index: tuple[PackageIndex, list[str]]) -> Project:
    """A copy of the smoke workspace as it was before its first run."""
    root = tmp_path / "a project"
    made = (".lexmill", "artifacts", "mlruns", "mlartifacts", "mlflow.db*", ".mlflow.db*", "reports", "metrics")
    shutil.copytree(project.root, root, symlinks=True, ignore=shutil.ignore_patterns(*made, "cache", "dvc.lock"))
    assert not (root / ".dvc" / "cache").exists()
    copy = Project(root, package_index[0].environment())
    Path(copy.environment["LEXMILL_EXECUTION"]).write_text(CHECKPOINT_EVERY_STEP)
    return copy


def outputs(root: Path) -> dict[str, list[dict[str, object]]]:
    stages = yaml.safe_load((root / "dvc.lock").read_text(encoding="utf-8"))["stages"]
    return {name: stage.get("outs", []) for name, stage in stages.items()}


def recorded(root: Path) -> int:
    """How many stages dvc.lock holds, whoever is writing it just now."""
    try:
        lines = (root / "dvc.lock").read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        return 0
    return sum(line.startswith("  ") and line[2:3].isalpha() for line in lines)


def metrics(root: Path) -> dict[str, bytes]:
    folder = root / "metrics"
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*.json"))}


def client_of(project: Project) -> MlflowClient:
    uri = store.absolute_uri("sqlite:///mlflow.db", project.root)
    return MlflowClient(uri, uri)


def registry(client: MlflowClient) -> list[list[object]]:
    """Each version: its model, number, what it was made from, and whether it is the champion."""
    found = []
    for one in client.search_model_versions():
        champion = client.get_model_version_by_alias(one.name, "champion").version
        made = {key: value for key, value in one.tags.items() if "fingerprint" in key or "kind" in key}
        found.append([one.name, one.version, sorted(made.items()), champion == one.version])
    return sorted(found)


def runs_of(client: MlflowClient) -> list[Run]:
    return list(client.search_runs([one.experiment_id for one in client.search_experiments()], max_results=10_000))


def models(client: MlflowClient) -> dict[str, Run]:
    """The finished run of each model; there is one."""
    finished = [run for run in runs_of(client) if MODEL in run.data.tags and run.info.status == "FINISHED"]
    found = {run.data.tags[MODEL]: run for run in finished}
    assert len(found) == len(finished), sorted(run.data.tags[MODEL] for run in finished)
    return found


def points(client: MlflowClient, run: Run) -> dict[str, list[tuple[int, float]]]:
    """Every point of every metric of a run, but for those that the clock decides."""
    return {
        key: [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, key)]
        for key in sorted(run.data.metrics)
        if not key.startswith(BY_THE_CLOCK)
    }


def doubled(client: MlflowClient, run: Run) -> list[str]:
    """The metrics of a training of which the run has more than one point for a step."""
    keys = [key for key in run.data.metrics if not key.startswith("stages/")]  # a point each time it was tried
    steps = {key: [one.step for one in client.get_metric_history(run.info.run_id, key)] for key in keys}
    return [key for key, found in steps.items() if len(set(found)) < len(found)]


def assert_runs_closed(client: MlflowClient, root: Path) -> None:
    """One parent for each pipeline run, nothing shown as running, no stage that ran well twice."""
    listed = runs_of(client)
    assert {run.info.status for run in listed} <= ENDED, [(r.info.run_name, r.info.status) for r in listed]
    parents = [run.data.tags[runs.RUN] for run in listed if runs.RUN in run.data.tags]
    kept = records(root)
    assert sorted(parents) == sorted(record.token for record in kept)
    assert all(record.ended for record in kept)
    parent_ids = {run.info.run_id for run in listed if runs.RUN in run.data.tags}
    stages = [run for run in listed if runs.STAGE in run.data.tags]
    assert {run.data.tags[PARENT] for run in stages} <= parent_ids
    well = [run.data.tags[runs.STAGE] for run in stages if run.info.status == "FINISHED"]
    assert len(set(well)) == len(well), sorted(well)


def left_behind(root: Path) -> list[str]:
    """Half-written files and folders, and checkpoints; one from which a longer training can go on is kept for good."""
    places = [root / name for name in ("artifacts", "metrics", "reports", ".lexmill")]
    found = [path for place in places for path in place.rglob("*") if path.name.endswith(".tmp")]
    found += (root / ".lexmill" / "checkpoints").glob("*/step-*")
    return [path.relative_to(root).as_posix() for path in found]


def test_killed_at_random_moments_it_ends_as_if_nothing_had_happened(project: Project, emptied: Project) -> None:
    root = emptied.root
    seed = int(os.environ.get("LEXMILL_TORTURE") or random.SystemRandom().randrange(10**6))
    print(f"LEXMILL_TORTURE={seed}")
    dice = random.Random(seed)
    victims = dice.sample(VICTIMS, len(VICTIMS))
    stages = len(outputs(project.root))
    begun: list[Victim] = []
    struck: list[str] = []
    for turn in range(ROUNDS):
        kind, wait = victims[turn % len(victims)], dice.uniform(0, LONGEST_WAIT)
        done = dice.randrange(turn * stages // (ROUNDS + 1), (turn + 1) * stages // (ROUNDS + 1))
        run = Victim(emptied)
        begun.append(run)
        while run.runner.poll() is None and recorded(root) < done:
            time.sleep(0.05)
        time.sleep(wait)
        killed = run.kill(kind)
        struck += [kind] if killed else []
        print(f"round {turn + 1}: {recorded(root)} stages done, {kind}: {killed}", flush=True)
        if kind in ("everything", "runner", *ASKED):
            run.wait_until_gone(120)
        else:  # the runner goes on with what does not need the killed stage, until it is interrupted
            time.sleep(wait)
            if run.runner.poll() is None:
                run.runner.send_signal(signal.SIGINT)
            run.wait_until_gone(120)
        with workspace.run_lock(root=root, wait_seconds=0):
            pass

    last = Victim(emptied)
    last.wait_until_gone(900)
    assert last.runner.returncode == 0, last.said()
    assert len(struck) >= ROUNDS // 2, "it was over too soon"
    assert records(root)[-1].code == 0
    assert outputs(root) == outputs(project.root), last.said()
    assert checkout.dvc_lock_digest(root) == checkout.dvc_lock_digest(project.root)  # inputs and params too
    assert metrics(root) == metrics(project.root)
    emptied.lexmill("sync")
    assert not spool.waiting(root)

    ours, theirs = client_of(emptied), client_of(project)
    assert registry(ours) == registry(theirs)
    assert [version[0] for version in registry(ours)] == list(MODELS)
    assert_runs_closed(ours, root)
    tortured, undisturbed = models(ours), models(theirs)
    assert set(tortured) == set(undisturbed) == set(MODELS)
    for name in MODELS:
        assert points(ours, tortured[name]) == points(theirs, undisturbed[name]), name
        assert doubled(ours, tortured[name]) == []

    assert left_behind(root) == left_behind(project.root)
    assert not [name for name in left_behind(root) if name.endswith(".tmp")]
    assert not any(json.loads((root / ".dvc" / "tmp" / "rwlock").read_text()).values())  # DVC's held paths
    assert "unchanged, nothing to run" in emptied.run("-m", "lexmill.cli", "run").stderr
    assert json.loads(emptied.run("-m", "dvc", "status", "--json").stdout) == {}
    for run in (*begun, last):
        assert run.processes() == []
    with workspace.run_lock(root=root, wait_seconds=0):
        pass
