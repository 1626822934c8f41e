"""A stop reaches the stage and not dvc, which puts its lock files in order when its stage has ended."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import wait_for

# As dvc does: starts a command, waits for its end, then writes. Ends with 9 where it was interrupted there.
LIKE_DVC = """
import subprocess, sys, time
from pathlib import Path
child = subprocess.Popen([sys.executable, "-c", sys.argv[2]])
if sys.argv[3] == "while it runs":
    Path(sys.argv[1]).touch()
child.wait()
try:
    Path(sys.argv[1]).touch()
    time.sleep(2)
except KeyboardInterrupt:
    sys.exit(9)
sys.exit(7)
"""


@pytest.mark.parametrize(
    ("when", "stage"),
    [
        ("while it runs", "import time; time.sleep(600)"),
        ("when it has ended", "sum(range(10**6))"),
    ],
)
def test_dvc_is_left_to_put_its_files_in_order(spawn: Any, tmp_path: Path, when: str, stage: str) -> None:
    there = tmp_path / "there"
    like_dvc = [sys.executable, "-c", LIKE_DVC, str(there), stage, when]
    process = spawn([sys.executable, "-m", "lexmill.runner.supervisor", *like_dvc], stdin=subprocess.PIPE)
    wait_for(there.exists)
    process.stdin.write("i")
    process.stdin.flush()
    assert process.wait(timeout=60) == 7


def test_dvc_is_interrupted_before_it_has_a_stage(spawn: Any, tmp_path: Path) -> None:
    there = tmp_path / "there"
    reading = f"import time; open({str(there)!r}, 'w'); time.sleep(600)"
    command = [sys.executable, "-m", "lexmill.runner.supervisor", sys.executable, "-c", reading]
    process = spawn(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    wait_for(there.exists)
    process.stdin.write("t")
    process.stdin.flush()
    assert process.wait(timeout=60) in (1, 130)
