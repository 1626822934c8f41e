"""Encoding in one process or in several: the same rows in the same order.

Texts go to worker processes a batch at a time and come back as arrays, in order; a few batches are under way at once,
so memory does not grow with the corpus. A worker ends when its parent is gone, however that went.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lexmill.tokenizers.bulk import BulkEncoder
from lexmill.tokenizers.tokenizer import Tokenizer


@dataclass(frozen=True)
class Texts:
    """Some texts of each side, and their characters in all."""

    sides: tuple[list[str], ...]
    characters: int


@dataclass(frozen=True)
class Rows:
    """Documents as ids back to back, each with its end token; bytes and unknown tokens of all of them."""

    ids: npt.NDArray[Any]
    lengths: npt.NDArray[np.int64]
    bytes: int
    unknown: int


@dataclass(frozen=True)
class Encoded:
    """`Texts` encoded."""

    sides: tuple[Rows, ...]
    characters: int


EncodingMap = Callable[[Iterable[Texts]], Iterator[Encoded]]


def encode(encoder: BulkEncoder, texts: Texts) -> Encoded:
    """Encode some texts, each followed by the end token."""
    return Encoded(tuple(_rows(encoder, side) for side in texts.sides), texts.characters)


def _rows(encoder: BulkEncoder, texts: list[str]) -> Rows:
    tokenizer = encoder.tokenizer
    normal = [tokenizer.normalize(text) for text in texts]
    ids, lengths = encoder.encode_normal(normal)
    unknown = 0 if tokenizer.unk_id is None else int((ids == tokenizer.unk_id).sum())
    size = sum(len(text.encode("utf-8")) for text in normal)
    return Rows(np.insert(ids, np.cumsum(lengths), tokenizer.eos_id), lengths + 1, size, unknown)


@contextmanager
def encoding_map(tokenizer: Tokenizer, processes: int) -> Iterator[EncodingMap]:
    """What encodes a stream of `Texts` in order, in this process or in several others."""
    if processes == 1:
        encoder = BulkEncoder(tokenizer)
        yield lambda stream: (encode(encoder, texts) for texts in stream)
        return
    # A new interpreter, not a copy of this one: the tokenizer library's threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, context, initializer=_begin, initargs=(tokenizer,))

    def in_order(stream: Iterable[Texts]) -> Iterator[Encoded]:
        waiting: deque[Future[Encoded]] = deque()
        texts = iter(stream)
        while True:
            for one in itertools.islice(texts, 2 * processes - len(waiting)):
                waiting.append(pool.submit(_encode, one))
            if not waiting:
                return
            yield waiting.popleft().result()

    try:
        yield in_order
    finally:
        pool.shutdown(cancel_futures=True)


_of_worker: list[BulkEncoder] = []  # the one of this worker process; it remembers chunks from batch to batch


def _begin(tokenizer: Tokenizer) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    tokenizer.backend.encode_special_tokens = True  # lost on the way
    _of_worker.append(BulkEncoder(tokenizer))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _encode(texts: Texts) -> Encoded:
    return encode(_of_worker[0], texts)
