"""Batches of tagged sentences, or of their windows.

Letters: B windows, T tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from lexmill.data.texts import Array, Batch, TextBatches
from lexmill.kinds.tagger.alignment import Window, label_row


class TaggingBatches(TextBatches):
    """Batches of windows that have a tag for each word.

    Args:
        windows: of sentences, each word in one of them.
        tags: of each window's words.
        number: of each tag.
        batch_size, seed, pad_id: as of `TextBatches`.

    Raises:
        UserError: there are no windows.
    """

    def __init__(
        self,
        windows: Sequence[Window],
        tags: Sequence[Sequence[str]],
        number: Mapping[str, int],
        *,
        batch_size: int,
        seed: int,
        pad_id: int,
    ) -> None:
        super().__init__([window.tokens for window in windows], batch_size, seed, pad_id)
        self._words = [window.words for window in windows]
        self.tags, self._number = tags, dict(number)

    def arrays(self, batch: Batch) -> dict[str, Array]:
        """Return tokens, mask, words (-1: of none) and labels (`IGNORED` after the last word), each (B, T)."""
        width = batch.tokens.shape[1]
        words = np.full(batch.tokens.shape, -1, dtype=np.int64)
        labels = np.empty(batch.tokens.shape, dtype=np.int64)
        for row, i in enumerate(batch.index):
            words[row, : len(self._words[i])] = self._words[i]
            labels[row] = label_row(self.tags[i], self._number, width)
        return {"tokens": batch.tokens, "mask": batch.mask, "words": words, "labels": labels}
