"""Several trainings one after another in two (or more) processes that know each other, for the price of one start.

As a script it is one of the processes. A plan is what `arithmetic_task.main` takes, and with `stops` it must be stopped
by a signal that it sends itself.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lexmill.errors import Terminated
from tests.training.arithmetic_task import main


def launch(folder: Path, plans: Mapping[str, Mapping[str, Any]], ranks: int = 2) -> list[subprocess.Popen[str]]:
    """Start the processes. Plan `x` has its checkpoints under folder/x (or its `root`), its results in folder/x.out."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    file = folder / f"plans-{port}.json"
    file.write_text(json.dumps(plans), encoding="utf-8")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return [
        subprocess.Popen(
            [sys.executable, "-m", "tests.training.ranks_at_once", str(folder), str(file)],
            env={**environment, "LOCAL_RANK": str(rank), "NODE_RANK": "0"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]


def run(folder: Path, plans: Mapping[str, Mapping[str, Any]], ranks: int = 2) -> None:
    """Run the plans to their ends."""
    processes = launch(folder, plans, ranks)
    told = [process.communicate(timeout=500)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * ranks, "\n\n".join(told)


def _run_plans(folder: Path, plans: Mapping[str, dict[str, Any]]) -> None:
    for name, plan in plans.items():
        try:
            main(str(folder / plan.get("root", name)), str(folder / f"{name}.out"), plan)
        except Terminated:
            if not plan.get("stops"):
                raise
        else:
            assert not plan.get("stops"), f"{name} was not stopped"


if __name__ == "__main__":
    # A process whose neighbour was killed must end by itself; the tests see to it that it does.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _run_plans(Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text(encoding="utf-8")))
