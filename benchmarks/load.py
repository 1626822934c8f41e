"""A registered model behind `lexmill serve` for minutes, at the rate that the machine holds.

python -m benchmarks.load NAME [--minutes 10] [--clients 4], in a workspace with a champion of that name

Each client sends its next request when the last is answered; one in fifty is bad. Every answer is compared with the one
that the same text got alone. Printed: requests a second, the median and the 99th percentile of the time to an answer,
wrong answers, and the server's memory after the first tenth of the time and at the end.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.measure import machine, machine_text

_TEXTS = 40
_BAD_EVERY = 50
_WORDS = ("turn", "on", "the", "light", "in", "a", "room", "that", "was", "dark", "all", "day", "and", "night")


@dataclass
class Load:
    """What came of it; seconds of each good answer, wrong ones, MiB of the server."""

    seconds: list[float] = field(default_factory=list)
    refused: int = 0
    wrong: int = 0
    elapsed: float = 0.0
    memory_before: float = 0.0
    memory_after: float = 0.0

    def summary(self) -> dict[str, float]:
        """Return the numbers that are printed."""
        p50, p99 = np.percentile(self.seconds, [50, 99]) * 1000
        return {
            "requests": len(self.seconds) + self.refused,
            "requests_per_second": (len(self.seconds) + self.refused) / self.elapsed,
            "p50_ms": float(p50),
            "p99_ms": float(p99),
            "refused_as_they_should": self.refused,
            "wrong": self.wrong,
            "memory_before_mib": self.memory_before,
            "memory_after_mib": self.memory_after,
        }


def texts() -> list[str]:
    """Return texts of one to forty words."""
    return [" ".join(_WORDS[(i * 7 + j) % len(_WORDS)] for j in range(1 + i)) for i in range(_TEXTS)]


@contextmanager
def served(name: str, root: Path) -> Iterator[tuple[int, psutil.Process]]:
    """Run `lexmill serve` on a free port."""
    command = [sys.executable, "-m", "lexmill.cli", "serve", name, "--port", "0"]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r":(\d+)/invocations", line)
            if found is None:
                raise RuntimeError(f"`lexmill serve {name}` did not start; its message is above")
            yield int(found[1]), psutil.Process(process.pid)
        finally:
            process.terminate()


class _Client:
    """One connection; opens it anew where the server closed it."""

    def __init__(self, port: int) -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=600)

    def post(self, fields: dict[str, Any]) -> tuple[int, Any]:
        body = json.dumps(fields)
        self._connection.request("POST", "/invocations", body, {"content-type": "application/json"})
        answer = self._connection.getresponse()
        return answer.status, json.loads(answer.read())


def drive(port: int, process: psutil.Process, *, seconds: float, clients: int, params: dict[str, Any]) -> Load:
    """Send requests for some seconds from several clients at once."""
    load, lock, given = Load(), threading.Lock(), texts()
    more = {"params": params} if params else {}
    alone = _Client(port)
    expected = [alone.post({"inputs": [text], **more}) for text in given]
    if any(code != 200 for code, _ in expected):
        raise RuntimeError(f"the model does not answer: {expected}")
    begin = time.monotonic()

    def send(client: int) -> None:
        mine, turn = _Client(port), 0
        while time.monotonic() < begin + seconds:
            turn += 1
            start = time.perf_counter()
            if turn % _BAD_EVERY == 1:
                code, _ = mine.post({"inputs": [turn], **more})
                with lock:
                    load.refused += code == 400
                    load.wrong += code != 400
                continue
            index = (turn + 7 * client) % _TEXTS
            answer = mine.post({"inputs": [given[index]], **more})
            with lock:
                load.seconds.append(time.perf_counter() - start)
                load.wrong += answer != expected[index]

    threads = [threading.Thread(target=send, args=(client,)) for client in range(clients)]
    for thread in threads:
        thread.start()
    time.sleep(seconds / 10)
    load.memory_before = process.memory_info().rss / 2**20
    for thread in threads:
        thread.join()
    load.elapsed = time.monotonic() - begin
    load.memory_after = process.memory_info().rss / 2**20
    return load


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the machine and the numbers; exit 1 where an answer was wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("name", metavar="NAME", help="a registered model of this workspace")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--params", type=json.loads, default={}, help='JSON, such as {"max_tokens": 20, "seed": 1}')
    options = parser.parse_args(arguments)
    with served(options.name, Path.cwd()) as (port, process):
        seconds = 60 * options.minutes
        load = drive(port, process, seconds=seconds, clients=options.clients, params=options.params)
    print(machine_text(machine()))
    for key, value in load.summary().items():
        print(f"{key.replace('_', ' ')}: {value:,.1f}")
    if load.wrong:
        sys.exit(1)


if __name__ == "__main__":
    main()
