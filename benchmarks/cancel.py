"""How long a run goes on that is cancelled from Prefect's page: the flow beside `lexmill run` that is sent SIGTERM.

Both sides: the command as typed, in a made workspace of one training that runs until it is ended; the flow with a
Prefect server that runs already. Once the training ends when it is asked to, once it hears nothing. Seconds from the
request (the flow's: the answer of the server's API to what the button of the page sends) until the process of the
training is gone, and until another run may have the workspace.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import yaml

from benchmarks.measure import ROOT, Comparison, in_turn
from benchmarks.prefect import server
from lexmill.base.errors import RetryableError
from lexmill.base.workspace import run_lock
from lexmill.params.derived import derive

_TRAINING = """
import os, signal, sys, time
from pathlib import Path
if sys.argv[1:] == ["deaf"]:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
Path("new").write_text(str(os.getpid()))
Path("new").rename("training")
time.sleep(3600)
"""
_LOOK_SECONDS = 0.01
_START_SECONDS = 300.0


def compare(repetitions: int, *, deaf: bool = True) -> list[Comparison]:
    """Measure both sides with a training that ends when it is asked to, and (`deaf`) with one that hears nothing."""
    comparisons = []
    kinds = [("", "a training that ends when asked"), *([("deaf", "a training that hears nothing")] if deaf else [])]
    with tempfile.TemporaryDirectory() as folder, server(Path(folder) / "server") as url:
        for kind, what in kinds:
            root = Path(folder) / f"project {kind}"
            environment = _project(root, kind) | {"PREFECT_API_URL": f"{url}/api", "PREFECT_HOME": f"{folder}/home"}
            environment |= {"PYTHONPATH": str(ROOT)}
            flow = _Run(root, environment, "flows", lambda _process, url=url: _cancel(url))  # type: ignore[misc]
            plain = _Run(root, environment, "lexmill.cli", lambda process: process.send_signal(signal.SIGTERM))
            ours, peer = in_turn(flow.end, plain.end, repetitions)
            for key, until in (("gone", "its process is gone"), ("free", "the workspace is free")):
                sides = ("cancelled from the page", ours[key]), ("lexmill run, SIGTERM", peer[key])
                comparisons.append(Comparison("cancel", f"{what}: until {until}", "s", *sides))
    return comparisons


def _project(root: Path, kind: str) -> dict[str, str]:
    """A workspace of one stage; gives the environment for its commands."""
    caches = {name: str(root.parent / name) for name in ("DVC_SITE_CACHE_DIR", "DVC_GLOBAL_CONFIG_DIR")}
    environment = os.environ | {"DVC_NO_ANALYTICS": "1", "CI": "1"} | caches
    (root / "conf" / "execution").mkdir(parents=True)
    (root / "conf" / "execution" / "local.yaml").write_text("publish: false\n", encoding="utf-8")
    choices = {"experiment": "cancel", "data_seed": 1, "training_seed": 1}
    (root / "params.yaml").write_text(yaml.safe_dump({**choices, **derive(choices)}), encoding="utf-8")
    (root / "training.py").write_text(_TRAINING, encoding="utf-8")
    stage = {"cmd": f'"{sys.executable}" training.py {kind}', "deps": ["training.py"], "outs": ["model"]}
    (root / "dvc.yaml").write_text(yaml.safe_dump({"stages": {"train": stage}}), encoding="utf-8")
    for command in (["git", "init", "-q"], [sys.executable, "-m", "dvc", "init", "-q"]):
        subprocess.run(command, cwd=root, env=environment, check=True)
    return environment


class _Run:
    """One side: the command that runs the training, and how it is told to end."""

    def __init__(
        self, root: Path, environment: dict[str, str], module: str, stop: Callable[[subprocess.Popen[str]], None]
    ) -> None:
        self._root, self._environment, self._stop = root, environment, stop
        self._command = [sys.executable, "-m", module, "run"]

    def end(self) -> dict[str, float]:
        """Start it, tell it to end when its training is at work; seconds until the training and the lock are gone."""
        note = self._root / "training"
        note.unlink(missing_ok=True)
        with (
            tempfile.TemporaryFile("w+") as output,
            subprocess.Popen(
                self._command, cwd=self._root, env=self._environment, text=True, stdout=output, stderr=output
            ) as process,
        ):
            try:
                _until(note.exists, process)
                training = psutil.Process(int(note.read_text()))
                self._stop(process)
                begun = time.perf_counter()
                _until(lambda: not training.is_running() or training.status() == psutil.STATUS_ZOMBIE)
                gone = time.perf_counter() - begun
                _until(lambda: _free(self._root))
                free = time.perf_counter() - begun
                process.wait()
            except BaseException:
                process.terminate()
                raise
            if process.returncode != 143 or (self._root / "dvc.lock").exists():
                output.seek(0)
                raise RuntimeError(f"{self._command} ended with {process.returncode}:\n{output.read()}")
        return {"gone": gone, "free": free}


def _until(condition: Callable[[], bool], process: subprocess.Popen[str] | None = None) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not condition():
        if time.monotonic() > deadline or (process is not None and process.poll() is not None):
            raise RuntimeError("the run ended before its training began, or hangs")
        time.sleep(_LOOK_SECONDS)


def _free(root: Path) -> bool:
    try:
        with run_lock("a look", root, wait_seconds=0):
            return True
    except RetryableError:
        return False


def _cancel(url: str) -> None:
    """What the button of the page does, for the one run that is at work."""
    running = {"state": {"type": {"any_": ["RUNNING"]}}}
    (run,) = _post(f"{url}/api/flow_runs/filter", {"flow_runs": running})
    state = {"state": {"type": "CANCELLING", "name": "Cancelling"}}
    answer = _post(f"{url}/api/flow_runs/{run['id']}/set_state", state)
    if answer["status"] != "ACCEPT":
        raise RuntimeError(f"the server refuses the cancel: {answer}")


def _post(address: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(address, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.load(reply)
