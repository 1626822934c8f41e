"""Batches of packed text for a causal language model.

Documents are concatenated, each followed by the end token, and the N tokens form a ring: the first document follows the
last. Epoch e cuts the ring into N // context windows of `context` targets, from an offset and in an order drawn from
(seed, e). The N % context tokens that no window of an epoch predicts differ between epochs. A ring shorter than a
window or a batch is repeated.

With separate documents (`mask_documents`) a position has the number of its target's document: a document is predicted
from the end token before it and itself alone, as when it is scored alone.

Letters: B windows in the global batch, T context.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from lexmill.base.errors import UserError
from lexmill.data.permutation import fold, permute
from lexmill.data.shards import TokenShards

Ids = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Batches(ABC):
    """The global batch of each step, a pure function of (seed, step)."""

    size: int  # B, windows in a global batch
    windows: int  # in an epoch

    @property
    def steps_per_epoch(self) -> int:
        """The steps in which as many windows are read as an epoch has (rounded up)."""
        return -(-self.windows // self.size)

    def epoch(self, step: int) -> float:
        """The number of epochs completed when `step` (from 0) begins."""
        return step * self.size / self.windows

    def batch(self, step: int) -> tuple[Ids, Ids]:
        """Inputs (B, T) and targets (B, T) of the global batch of a step, counted from 0."""
        return self.rows(step, 0, 1)

    @abstractmethod
    def rows(self, step: int, rank: int, world: int) -> tuple[Ids, Ids]:
        """The rows rank, rank + world, ... of the global batch; only these are read.

        Raises:
            UserError: there are more ranks than rows, so that one would have no work.
        """


class WindowBatches(Batches):
    """The batches of one corpus.

    Args:
        shards: the train split.
        context: T, targets in a window.
        batch_tokens: targets in a global batch; B = batch_tokens // context.
        seed: the data seed.

    Raises:
        UserError: the split is empty, or batch_tokens holds no window.
    """

    def __init__(self, shards: TokenShards, context: int, batch_tokens: int, seed: int) -> None:
        if len(shards.tokens) == 0:
            raise UserError(f"the {shards.split} split holds no tokens to learn from", shards.folder)
        if batch_tokens < context:
            raise UserError(f"batch_tokens ({batch_tokens}) is below context ({context}): not one window fits")
        self.shards, self.context, self.seed = shards, context, seed
        self.size = batch_tokens // context
        self.windows = max(1, len(shards.tokens) // context)

    def rows(self, step: int, rank: int, world: int) -> tuple[Ids, Ids]:
        """See `Batches.rows`."""
        return self.windows_at(positions(step, self.size, rank, world))

    def documents(self, step: int, rank: int, world: int) -> Ids:
        """(B, T): the document of each target of `rows`, numbered from 0 within its row."""
        return self.documents_at(positions(step, self.size, rank, world))

    def windows_at(self, position: Ids) -> tuple[Ids, Ids]:
        """Inputs and targets of the windows at these positions of the endless order."""
        block = np.empty((len(position), self.context + 1), dtype=np.int64)
        for row, start in enumerate(self._starts(position)):
            block[row] = self._ring(int(start))
        return block[:, :-1].copy(), block[:, 1:].copy()

    def documents_at(self, position: Ids) -> Ids:
        """The documents of the targets of the windows at these positions."""
        return _documents(self.shards, self._starts(position) + 1, self.context)

    def _starts(self, position: Ids) -> Ids:
        """Where in the ring the windows at these positions of the endless order start."""
        starts = np.empty_like(position)
        epochs = position // self.windows
        for epoch in np.unique(epochs):
            here = epochs == epoch
            window = permute(position[here] % self.windows, self.windows, fold(self.seed, "windows", int(epoch)))
            offset = fold(self.seed, "offset", int(epoch)) % len(self.shards.tokens)
            starts[here] = (offset + window * self.context) % len(self.shards.tokens)
        return starts

    def _ring(self, start: int) -> npt.NDArray[np.int64]:
        """context + 1 tokens from `start` on, continued at the beginning after the end."""
        tokens, wanted = self.shards.tokens, self.context + 1
        pieces = [tokens[start : start + wanted]]
        wanted -= len(pieces[0])
        while wanted:
            pieces.append(tokens[:wanted])
            wanted -= len(pieces[-1])
        return np.concatenate(pieces).astype(np.int64)


def positions(step: int, size: int, rank: int, world: int) -> Ids:
    """The positions in the endless order of windows of the rows rank, rank + world, ... of a step's batch of `size`.

    Raises:
        UserError: there are more ranks than rows, so that one would have no work.
    """
    if size < world:
        raise UserError(f"{world} devices share a batch of {size} windows; raise batch_tokens")
    return step * size + np.arange(rank, size, world, dtype=np.int64)


def _documents(shards: TokenShards, starts: Ids, width: int) -> Ids:
    """(B, width): the documents of the tokens from each start on, round the ring, numbered from 0 in each row."""
    total = len(shards.tokens)
    begins = np.zeros((len(starts), width), dtype=np.int64)  # 1 where a document begins
    for row, start in zip(begins, starts.tolist(), strict=True):
        for lap in range(start // total, -(-(start + width) // total)):
            first, last = np.searchsorted(shards.offsets, [start + 1 - lap * total, start + width - lap * total])
            row[shards.offsets[first:last] + (lap * total - start)] = 1
    return np.cumsum(begins, axis=1)


def evaluation_windows(shards: TokenShards, context: int, rows: int = 16) -> Iterator[tuple[Ids, Ids, Mask]]:
    """Yield every target of a split exactly once, the end tokens included.

    Targets are the split's tokens in order; the first is predicted from the end token, as if a document had just
    ended, the others from the tokens before them in their window. Windows do not overlap, so a target has at most
    `context` and on average half as many tokens before it.

    Args:
        shards: the split.
        context: T, targets in a window.
        rows: B, windows in a batch.

    Yields:
        inputs (B, T) int64, targets (B, T) int64, mask (B, T) bool: which targets count. The last batch is padded,
        with mask False.
    """
    total, block = len(shards.tokens), rows * context
    for start in range(0, total, block):
        stop = min(start + block, total)
        targets = np.full(block, shards.pad_id, dtype=np.int64)
        inputs = np.full(block, shards.pad_id, dtype=np.int64)
        targets[: stop - start] = shards.tokens[start:stop]
        inputs[0] = shards.tokens[start - 1] if start else shards.eos_id
        inputs[1 : stop - start] = targets[: stop - start - 1]
        mask = np.arange(block) < stop - start
        yield inputs.reshape(rows, context), targets.reshape(rows, context), mask.reshape(rows, context)


def evaluation_documents(shards: TokenShards, context: int, rows: int = 16) -> Iterator[Ids]:
    """For each batch of `evaluation_windows`, the document of each target, (B, T), from 0 in each row."""
    for start in range(0, len(shards.tokens), rows * context):
        yield _documents(shards, start + context * np.arange(rows, dtype=np.int64), context)
