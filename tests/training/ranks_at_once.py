"""Several trainings one after another in two (or more) processes that know each other, for the price of one start.

As a script it is one of the processes. A plan is what `arithmetic_task.main` takes, and with `stops` it must be stopped
by a signal that it sends itself. Importing torch and Fabric takes two seconds: but for the `fresh` ones, processes are
forked from one that has done so, which starts with the first of them and ends with the tests.
"""

import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lexmill.base.errors import Terminated
from tests.training.arithmetic_task import main, script

WARM = multiprocessing.get_context("forkserver")
WARM.set_forkserver_preload(["lightning_fabric", "tests.training.ranks_at_once"])


@dataclass
class Rank:
    """One of the processes, and the file with all that it says on standard error."""

    process: "subprocess.Popen[bytes] | multiprocessing.process.BaseProcess"
    message: Path

    def end(self, seconds: float) -> tuple[int, str]:
        """Wait for its end: its exit code, below zero for a signal, and what it said."""
        if isinstance(self.process, subprocess.Popen):
            code: int | None = self.process.wait(seconds)
        else:
            self.process.join(seconds)
            code = self.process.exitcode
        message = self.message.read_text(encoding="utf-8")
        assert code is not None, message
        return code, message


def launch(folder: Path, plans: Mapping[str, Mapping[str, Any]], ranks: int = 2, *, fresh: bool = False) -> list[Rank]:
    """Start the processes. Plan `x` has its checkpoints under folder/x (or its `root`), its results in folder/x.out."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    file = folder / f"plans-{port}.json"
    file.write_text(json.dumps(plans), encoding="utf-8")
    every = {"OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "NODE_RANK": "0"}
    started = []
    for rank in range(ranks):
        environment, message = {**every, "LOCAL_RANK": str(rank)}, folder / f"output-{port}-{rank}"
        if fresh:
            with open(message, "wb") as stream:
                command = [sys.executable, "-m", "tests.training.ranks_at_once", str(folder), str(file)]
                process: Any = subprocess.Popen(
                    command, env={**os.environ, **environment}, stdout=subprocess.DEVNULL, stderr=stream
                )
        else:
            process = _fork(environment, message, _main, folder, file)
        started.append(Rank(process, message))
    return started


def alone(root: Path, out: Path, plan: Mapping[str, Any]) -> tuple[int, str]:
    """`arithmetic_task` as a script in a process of its own: its exit code, and what it said."""
    message = out.with_name("message")
    process = _fork({"OMP_NUM_THREADS": "1"}, message, script, str(root), str(out), json.dumps(plan))
    return Rank(process, message).end(300)


def _fork(environment: dict[str, str], message: Path, work: Callable[..., None], *arguments: Any) -> Any:
    process = WARM.Process(target=_forked, args=({**os.environ, **environment}, message, work, arguments), daemon=True)
    process.start()
    return process


def _forked(environment: dict[str, str], message: Path, work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    with open(message, "wb") as stream, open(os.devnull, "wb") as nothing:
        os.dup2(stream.fileno(), 2)
        os.dup2(nothing.fileno(), 1)
    work(*arguments)


def run(folder: Path, plans: Mapping[str, Mapping[str, Any]], ranks: int = 2) -> None:
    """Run the plans to their ends."""
    ended = [rank.end(500) for rank in launch(folder, plans, ranks)]
    assert [code for code, _ in ended] == [0] * ranks, "\n\n".join(message for _, message in ended)


def _run_plans(folder: Path, plans: Mapping[str, dict[str, Any]]) -> None:
    for name, plan in plans.items():
        try:
            main(str(folder / plan.get("root", name)), str(folder / f"{name}.out"), plan)
        except Terminated:
            if not plan.get("stops"):
                raise
        else:
            assert not plan.get("stops"), f"{name} was not stopped"


def _main(folder: Path, file: Path) -> None:
    # A process whose neighbour was killed must end by itself; the tests see to it that it does.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _run_plans(folder, json.loads(file.read_text(encoding="utf-8")))


if __name__ == "__main__":
    _main(Path(sys.argv[1]), Path(sys.argv[2]))
