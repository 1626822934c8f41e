"""`kill -9` at random moments of `lexmill run`, six times, then the same command: the result of an undisturbed run.

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

from lexmill import workspace
from tests.e2e.conftest import Project
from tests.support.package_index import PackageIndex

pytestmark = [pytest.mark.e2e, pytest.mark.torture, pytest.mark.timeout(3600)]

VICTIMS = ("everything", "runner", "supervisor", "dvc", "stage")  # each once in five rounds
ROUNDS = 6
LONGEST_WAIT = 4.0  # seconds from the moment chosen to the kill, at most
MARK = "LEXMILL_TORTURED"
CHECKPOINT_EVERY_STEP = "accelerator: cpu\ncheckpoint_seconds: 0\n"

REGISTRY = """
import json
from mlflow import MlflowClient
client = MlflowClient("sqlite:///mlflow.db")
versions = [
    [one.name, one.version, one.tags, client.get_model_version_by_alias(one.name, "champion").version]
    for one in client.search_model_versions()
]
experiments = [one.experiment_id for one in client.search_experiments()]
runs = [[one.info.run_name, one.info.status] for one in client.search_runs(experiments)]
print("ANSWER " + json.dumps({"versions": sorted(versions), "runs": sorted(runs)}))
"""


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
        """`kill -9` the processes of a kind, as soon as there are any; gives their command lines."""
        while self.runner.poll() is None:
            if victims := self.of_kind(kind):
                names = [_module(process) for process in victims]
                for process in victims:
                    try:
                        process.kill()
                    except psutil.NoSuchProcess:
                        continue
                return names
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
    """`lexmill.stages.pretrain gpt` of `python -m lexmill.stages.pretrain gpt`; else empty."""
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
    (root / "conf" / "execution" / "local.yaml").write_text(CHECKPOINT_EVERY_STEP)
    return Project(root, package_index[0].environment())


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


def registry(project: Project) -> dict[str, list[list[object]]]:
    found = json.loads(project.run("-c", REGISTRY).stdout.split("ANSWER ")[1])
    for version in found["versions"]:
        version[2] = {key: value for key, value in version[2].items() if "fingerprint" in key or "kind" in key}
    return found


def left_behind(root: Path) -> list[str]:
    """Half-written files and folders, and checkpoints that nobody needs any more."""
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
    for turn in range(ROUNDS):
        kind, wait = victims[turn % len(victims)], dice.uniform(0, LONGEST_WAIT)
        done = recorded(root) + dice.randrange(len(outputs(project.root)) // ROUNDS + 1)
        run = Victim(emptied)
        while run.runner.poll() is None and recorded(root) < done:
            time.sleep(0.05)
        time.sleep(wait)
        killed = run.kill(kind)
        print(f"round {turn + 1}: {recorded(root)} stages done, kill -9 {kind}: {killed}", flush=True)
        if kind in ("everything", "runner"):
            run.wait_until_gone(15)
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
    assert outputs(root) == outputs(project.root), last.said()
    assert metrics(root) == metrics(project.root)
    assert registry(emptied) == registry(project)
    assert len(registry(emptied)["versions"]) == 3
    assert left_behind(root) == []
    assert not any(json.loads((root / ".dvc" / "tmp" / "rwlock").read_text()).values())  # DVC's held paths
    assert "unchanged, nothing to run" in emptied.run("-m", "lexmill.cli", "run").stderr
    assert json.loads(emptied.run("-m", "dvc", "status", "--json").stdout) == {}
