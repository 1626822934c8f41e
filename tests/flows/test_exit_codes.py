"""What a stage ends with is what whoever started it gets, through every door; after a signal nothing is left.

Plain `dvc repro` knows one code for every failure, 255: there the stage's own stands in its status file. (0 is what the
whole runs of tests/e2e/test_doors.py end with.)
"""

from __future__ import annotations

import json
import os
import signal
import sys
import uuid
from pathlib import Path

import psutil
import pytest
import yaml

from lexmill.base import workspace as own_files
from lexmill.base.errors import EXIT_BUG, EXIT_INTERRUPTED, EXIT_RETRY, EXIT_TERMINATED, EXIT_USER
from tests.support.processes import Started
from tests.support.waiting import wait_for

from .conftest import Workspace

pytestmark = pytest.mark.e2e

STAGE = """
import os, subprocess, sys, time
from pathlib import Path
from lexmill.base.errors import RetryableError, UserError
from lexmill.stages.entry import run_stage

def main(key):
    if key == "slow":
        if "WITH_CHILD" in os.environ:
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        Path("begun").touch()
        time.sleep(600)
    if key == "wrong":
        raise UserError("line 3 is empty", "rows.txt")
    raise RetryableError("no network") if key == "again" else ZeroDivisionError("an oversight")

run_stage(main)
"""
FLOW = """
import os, sys
os.environ["PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL"] = "CRITICAL"  # as the command does before Prefect is imported
from flows import pipeline
pipeline.RETRY_PAUSES = (0.1,)
from flows.__main__ import main
main(["run", *sys.argv[1:]])
"""
DOORS: dict[str, tuple[str, ...]] = {
    "the stage": ("-m", "ends"),
    "dvc repro": ("-m", "dvc", "repro"),
    "lexmill run": ("-m", "lexmill.cli", "run"),
    "the flow": ("-c", FLOW),
}
SUPERVISED = ("lexmill run", "the flow")
CODES = {
    "bug": (EXIT_BUG, "ZeroDivisionError: an oversight"),
    "wrong": (EXIT_USER, "rows.txt: line 3 is empty"),
    "again": (EXIT_RETRY, "no network"),
}


class Ends(Workspace):
    """A workspace of stages that end in each way, and `next`, which needs the one that does not end by itself."""

    def __init__(self, root: Path, url: str) -> None:
        super().__init__(root, url)
        (root / "ends.py").write_text(STAGE)
        python = f"'{sys.executable}'"
        ends = {"cmd": f"{python} -m ends ${{item}}", "outs": ["${item}.out"]}
        after = {"cmd": "touch next.out", "deps": ["slow.out"], "outs": ["next.out"]}
        stages = {"ends": {"foreach": [*CODES, "slow"], "do": ends}, "next": after}
        (root / "dvc.yaml").write_text(yaml.safe_dump({"stages": stages}))

    def open(self, door: str, key: str, mark: str) -> Started:
        """Start a stage through a door; all processes of it inherit the mark."""
        target = key if door == "the stage" else "next" if key == "slow" else f"ends@{key}"
        (self.root / "begun").unlink(missing_ok=True)
        own_files.clear_status(f"ends@{key}", self.root)
        more = {
            "PREFECT_API_URL": f"{self.url}/api",
            "OPENED": mark,
            **({"WITH_CHILD": "1"} if door in SUPERVISED else {}),
        }
        return Started(*DOORS[door], target, root=self.root, environment=self.environment | more)

    def ended(self, key: str) -> tuple[int, str] | None:
        """What the stage left in its status file."""
        return own_files.read_status(f"ends@{key}", self.root)


def living(mark: str) -> list[list[str]]:
    """The command lines of what still runs of a door."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("OPENED") == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.cmdline())
        except psutil.Error:
            continue
    return found


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory, prefect_url: str) -> Ends:
    root = tmp_path_factory.mktemp("codes") / "a workspace"
    root.mkdir()
    return Ends(root, prefect_url)


@pytest.mark.parametrize("key", CODES)
@pytest.mark.parametrize("door", DOORS)
def test_each_door_hands_over_the_code_and_the_sentence(ends: Ends, door: str, key: str) -> None:
    code, sentence = CODES[key]
    with ends.open(door, key, "") as process:
        message, _ = process.communicate(timeout=300)
    assert process.returncode == (255 if door == "dvc repro" else code), message
    left = ends.ended(key)
    assert left is not None
    assert left[0] == code
    assert sentence in left[1]
    assert sentence in message
    assert ("Traceback" in message) == (code == EXIT_BUG), message
    assert not (ends.root / "dvc.lock").exists(), "a stage that failed is not recorded"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, EXIT_INTERRUPTED), (signal.SIGTERM, EXIT_TERMINATED)])
@pytest.mark.parametrize("door", DOORS)
def test_a_stopped_door_tells_so_and_leaves_nothing_running(
    ends: Ends, door: str, number: signal.Signals, code: int
) -> None:
    mark = uuid.uuid4().hex
    with ends.open(door, "slow", mark) as process:
        wait_for(lambda: (ends.root / "begun").exists() or process.poll() is not None)
        if (door, number) == ("dvc repro", signal.SIGINT):
            os.killpg(process.pid, number)  # as a terminal does: dvc itself does not hear it while a stage runs
        else:
            process.send_signal(number)
        message, _ = process.communicate(timeout=300)
    wait_for(lambda: not living(mark), "something still runs")
    dvc_alone = 255 if number == signal.SIGINT else -signal.SIGTERM
    assert process.returncode == (dvc_alone if door == "dvc repro" else code), message
    assert ends.ended("slow") == (code, "interrupted" if number == signal.SIGINT else "terminated")
    assert "Traceback" not in message
    assert not (ends.root / "next.out").exists()
    assert not (ends.root / "dvc.lock").exists(), "a stage that was stopped is not recorded"
    with own_files.run_lock(root=ends.root, wait_seconds=0):
        pass
    if door in SUPERVISED:
        assert "ends@slow: stopped after" in message
        assert not any(json.loads((ends.root / ".dvc" / "tmp" / "rwlock").read_text()).values())
