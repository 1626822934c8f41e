"""A workspace on a disk of its own that fills in the middle of a run, or is read-only; a script, not a test.

    unshare --user --map-root-user --mount python -m tests.faults.own_disk FOLDER PLACE HOW SECONDS

Copies FOLDER (a workspace and its home) onto a new disk at PLACE, which only this process and its children see. Runs
`lexmill run`; the disk is `read-only`, or `full` from SECONDS after the start. Then the disk is mended and the run
given again. Prints one JSON object: the codes and words of both runs, and the outcome.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests.e2e.conftest import Project
from tests.faults.outcome import assert_nothing_held, outcome
from tests.faults.victim import Victim

SIZE = "400m"
RUN = ("-m", "lexmill.cli", "run")


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def fill(place: Path) -> Path:
    """Write until nothing more can be written."""
    ballast = place / "ballast"
    with open(ballast, "wb", buffering=0) as stream:
        for size in (1 << 20, 1 << 12):
            try:
                while True:
                    stream.write(bytes(size))
            except OSError:
                continue
    return ballast


def main(source: str, target: str, how: str, seconds: str) -> None:
    place = Path(target)
    mount("-t", "tmpfs", "-o", f"size={SIZE}", "disk", target)
    for path in Path(source).iterdir():
        if path.is_dir():
            shutil.copytree(path, place / path.name, symlinks=True)
        else:
            shutil.copy2(path, place)
    project = Project(place / "a project", json.loads(os.environ["OWN_DISK_INDEX"]))
    (place / "logs").mkdir()
    mount("-t", "tmpfs", "logs", str(place / "logs"))
    if how == "read-only":
        mount("-o", "remount,ro", target)
    first = Victim(project, *RUN, log=place / "logs" / "first.log")
    if how == "full":
        time.sleep(float(seconds))
    late = not first.running
    if how == "full":
        ballast = fill(place)
    code = first.wait_until_gone(300)
    if how == "full":
        ballast.unlink()
    else:
        mount("-o", "remount,rw", target)
    again = Victim(project, *RUN, log=place / "logs" / "again.log")
    ended = again.wait_until_gone(600)
    assert_nothing_held(project, first, again)
    found = {"late": late, "codes": [code, ended], "said": [first.said(), again.said()], "outcome": outcome(project)}
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
