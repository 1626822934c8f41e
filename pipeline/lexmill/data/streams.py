"""Windows that follow one another, for a state carried from step to step (truncated back-propagation through time).

The ring of N tokens (see `windows`) is cut into B streams of N // B tokens, one a row. In step after step a row reads
the next window of its stream; after N // B // context steps an epoch ends, and the next one cuts the ring from another
offset, drawn from (seed, epoch). All is a function of (seed, step).

Letters: B windows in the global batch, T context, N tokens.
"""

from __future__ import annotations

import numpy as np

from lexmill.data.permutation import fold
from lexmill.data.shards import TokenShards
from lexmill.data.windows import Ids, Mask, WindowBatches, positions


class StreamBatches(WindowBatches):
    """The batches of one corpus, each row the continuation of the same row one step before; see `WindowBatches`."""

    def __init__(self, shards: TokenShards, context: int, batch_tokens: int, seed: int) -> None:
        super().__init__(shards, context, batch_tokens, seed)
        self.stride = len(shards.tokens) // self.size
        self.steps = max(1, self.stride // context)
        self.windows = self.steps * self.size

    def fresh(self, step: int, rank: int, world: int, separate: bool) -> Mask:
        """(B,): whether a row starts from a zero state.

        Args:
            separate: also where a document starts with the row's first target.
        """
        position = positions(step, self.size, rank, world)
        if step % self.steps == 0:
            return np.ones(len(position), dtype=np.bool_)
        first = (self._starts(position) + 1) % len(self.shards.tokens)
        return np.isin(first, self.shards.offsets) & separate

    def _starts(self, position: Ids) -> Ids:
        step, row = np.divmod(position, self.size)
        epoch, window = np.divmod(step, self.steps)
        offsets = {one: fold(self.seed, "offset", one) % len(self.shards.tokens) for one in np.unique(epoch).tolist()}
        offset = np.array([offsets[one] for one in epoch.tolist()], dtype=np.int64)
        starts: Ids = (offset + row * self.stride + window * self.context) % len(self.shards.tokens)
        return starts
