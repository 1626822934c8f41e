"""What ends the submitting side while it looks at its job."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from lexmill.base.errors import LexmillError, RetryableError, SignalledToEnd
from lexmill.compute import drive
from lexmill.compute.execution import Execution
from lexmill.compute.job import JobFolder, handed_on
from lexmill.compute.launcher import Look
from lexmill.compute.place import Place
from lexmill.stages.entry import terminate


class Struck:
    """A launcher in whose first look SIGTERM arrives, while its program is asked."""

    name = "struck"

    def __init__(self) -> None:
        self.looks, self.cancelled = 0, False

    def submit(self, place: Place, command: Sequence[str], folder: JobFolder, environment: dict[str, str]) -> str:
        return "job-1"

    def look(self, job: str) -> Look:
        self.looks += 1
        if self.looks == 1:
            program = f"import os, signal, time; os.kill({os.getpid()}, signal.SIGTERM); time.sleep(30)"
            subprocess.run([sys.executable, "-c", program], check=False)
        return Look("ended", "cancelled") if self.cancelled else Look("running", "running")

    def cancel(self, job: str) -> None:
        self.cancelled = True


@pytest.fixture
def _terminating() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, terminate)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("_terminating")
def test_a_stop_in_the_middle_of_a_look_cancels_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no answer of the cluster: such an error is waited out."""
    monkeypatch.chdir(tmp_path)
    struck = Struck()
    monkeypatch.setattr(drive, "launcher_of", lambda *_: struck)
    place = Place("train@toy", "kubernetes", gpus=0, cpus=0, memory=0, seconds=0, nodes=1, processes=1)
    with pytest.raises(SignalledToEnd):
        drive.run_elsewhere(place, ["lexmill.stages.train", "toy"], Execution())
    assert struck.cancelled
    assert struck.looks == 2


@pytest.mark.parametrize(
    ("word", "cause", "code"),
    [
        ((75, "another ended"), LexmillError("a bug"), 1),
        ((143, "terminated"), LexmillError("a bug"), 1),
        ((1, "Traceback"), RetryableError("one was lost"), 75),
        (None, RetryableError("one was lost"), 75),
        ((2, "no shards"), LexmillError("a bug"), 2),
        ((143, "terminated"), None, 75),
    ],
)
def test_the_cause_of_a_groups_end_counts_before_what_its_first_process_saw(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    word: tuple[int, str] | None,
    cause: LexmillError | None,
    code: int,
) -> None:
    monkeypatch.chdir(tmp_path)

    class Ended(Struck):
        def submit(self, place: Place, command: Sequence[str], folder: JobFolder, environment: dict[str, str]) -> str:
            if word is not None:
                folder.write_status(*word)
            return "job-1"

        def look(self, job: str) -> Look:
            return Look("ended", "exit code", LexmillError("no word"), cause)

    monkeypatch.setattr(drive, "launcher_of", lambda *_: Ended())
    place = Place("train@toy", "torchrun", gpus=0, cpus=0, memory=0, seconds=0, nodes=1, processes=2)
    with pytest.raises(LexmillError) as caught:
        drive.run_elsewhere(place, ["lexmill.stages.train", "toy"], Execution())
    assert caught.value.exit_code == code


def test_what_a_cluster_stores_of_our_environment_holds_no_secret() -> None:
    """Kubernetes shows a Job's variables, Prefect those of a flow run, to all who may look at them."""
    ours = {"LEXMILL_EXECUTION": "local", "DVC_STAGE": "fetch@plays", "LEXMILL_DEBIAN_MIRROR": "https://mirror/debian"}
    secrets = {"LEXMILL_TOKEN": "hush", "AWS_SECRET_ACCESS_KEY": "hush", "MLFLOW_TRACKING_PASSWORD": "hush"}
    assert handed_on(ours | secrets) == ours
    assert "LEXMILL_DEBIAN_MIRROR" not in handed_on({"LEXMILL_DEBIAN_MIRROR": "https://me:hush@mirror/debian"})
