"""Choose the executor by the execution settings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lexmill.compute.cores import cores
from lexmill.compute.execution import load_execution
from lexmill.compute.workers.cluster import Cluster
from lexmill.compute.workers.executor import Executor, Here
from lexmill.compute.workers.processes import Processes


@contextmanager
def executor_for(stage: str, size: int) -> Iterator[Executor]:
    """Yield the executor for the pieces of a corpus; whatever it starts ends with the block.

    Args:
        stage: for messages: `prepare shakespeare`.
        size: bytes of the corpus; a small one is processed here.
    """
    execution = load_execution()
    data = execution.data
    # 0: a cluster elsewhere reports its own size.
    count = data.count or (0 if data.address else execution.threads or cores())
    if data.workers == "local" or size < data.from_bytes or (data.workers == "processes" and count == 1):
        yield Here()
    elif data.workers == "processes":
        with Processes(count, _piece_bytes(size, count, 8 << 20)) as pool:
            yield pool
    else:
        # A Prefect task costs a tenth of a second, so its pieces may be larger.
        with Cluster(stage, data, count, _piece_bytes(size, count, 64 << 20)) as cluster:
            yield cluster


def _piece_bytes(size: int, count: int, most: int) -> int:
    """Return a size that keeps all workers busy until nearly the end."""
    return max(1, min(most, size // (8 * (count or 16))))
