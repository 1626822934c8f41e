"""An executor with several processes of this machine.

A worker ends with the pool or its parent, however that ends: it watches a pipe whose other end the parent holds.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from types import TracebackType

from lexmill.base.errors import RetryableError
from lexmill.compute.workers.executor import Advance, Plain, Work, outcome_of, results


class Processes:
    """A pool of worker processes; a context manager that ends them."""

    alone = False

    def __init__(self, count: int, piece_bytes: int = 8 << 20) -> None:
        """
        Args:
            count: how many.
            piece_bytes: see `Executor`.
        """
        self.count, self.piece_bytes = count, piece_bytes
        # New interpreters, not copies of this one: the tokenizer library's threads do not survive a fork.
        context = multiprocessing.get_context("spawn")
        self._theirs, self._ours = context.Pipe(duplex=False)
        self._pool = ProcessPoolExecutor(count, context, initializer=_begin, initargs=(self._theirs,))

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, kind: type[BaseException] | None, _error: object, _trace: TracebackType | None) -> None:
        if kind is not None:
            self._ours.close()  # their results are of no use any more
        self._pool.shutdown(cancel_futures=True)
        self._ours.close()
        self._theirs.close()

    def submit(self, work: Work, piece: Plain) -> Future[Plain]:
        """Submit one piece; the future has its outcome (`lexmill.compute.workers.executor.outcome_of`)."""
        return self._pool.submit(outcome_of, work, piece)

    def map(self, work: Work, common: Plain, items: Sequence[Plain], advance: Advance) -> Iterator[Plain]:
        """See `Executor.map`."""

        def outcomes() -> Iterator[Plain]:
            waiting: deque[Future[Plain]] = deque()
            left = iter(items)
            while True:
                while len(waiting) < 2 * self.count and (item := next(left, None)) is not None:
                    waiting.append(self.submit(work, {**common, **item}))
                if not waiting:
                    return
                yield waiting.popleft().result()

        try:
            yield from results(outcomes(), advance)
        except BrokenProcessPool:
            raise lost_worker() from None


def lost_worker() -> RetryableError:
    """Return the error for a worker process killed from outside."""
    return RetryableError(
        "a worker process was ended from outside, perhaps for want of memory; nothing was kept of its work. Run again,"
        " with fewer of them (data_worker_count) where memory is short"
    )


def _begin(parent: Connection) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    threading.Thread(target=_end_with_parent, args=(parent,), daemon=True).start()


def _end_with_parent(parent: Connection) -> None:
    try:
        parent.recv()
    except (EOFError, OSError):
        os._exit(1)
