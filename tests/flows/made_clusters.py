"""A Dask or a Ray cluster as somebody else has started it: real processes, in another folder, gone at the end."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from lexmill.commands.servers import free_port


@contextmanager
def started(commands: list[list[str]], folder: Path, **environment: str) -> Iterator[None]:
    """Commands that run for as long as the block, in another folder, as on other machines."""
    folder.mkdir()
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "DASK_"))}
    processes = [
        subprocess.Popen(
            [sys.executable, *command],
            cwd=folder,
            env=inherited | environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for command in commands
    ]
    try:
        yield
        assert [process.poll() for process in processes] == [None] * len(processes)  # none is ours to end
    finally:
        rest = [child for one in processes for child in psutil.Process(one.pid).children(recursive=True)]
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(100)
        alive = psutil.wait_procs(rest, timeout=30)[1]
        for process in alive:
            process.kill()
        assert not alive


@contextmanager
def dask_cluster(folder: Path) -> Iterator[str]:
    """A scheduler and a worker, started with the commands that docs/large-corpora.md has."""
    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    commands = [
        ["-m", "dask", "scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard"],
        ["-m", "dask", "worker", address, "--nworkers", "1", "--nthreads", "2", "--no-dashboard"],
    ]
    with started(commands, folder):
        await_answer(port)
        yield address


@contextmanager
def ray_cluster(folder: Path) -> Iterator[str]:
    """A head, started with the command that docs/large-corpora.md has."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as short:
        command = ["-m", "ray.scripts.scripts", "start", "--head", "--block", "--node-ip-address=127.0.0.1"]
        command += [f"--ray-client-server-port={port}", f"--port={free_port()}"]
        command += [f"--dashboard-agent-listen-port={free_port()}", "--num-cpus=2"]
        command += ["--include-dashboard=false", "--disable-usage-stats", "--object-store-memory=100000000"]
        with started([[*command, f"--temp-dir={short}"]], folder, **RAY_LOGIN):
            await_answer(port)
            yield f"ray://127.0.0.1:{port}"


CLUSTERS = {"dask": dask_cluster, "ray": ray_cluster}
RAY_LOGIN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "a" * 64}


def await_answer(port: int) -> None:
    deadline = time.monotonic() + 100
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.1)
