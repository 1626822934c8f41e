"""Batches of labelled texts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lexmill.base.errors import UserError
from lexmill.data.texts import Array, Batch, Ids, TextBatches


class ClassificationBatches(TextBatches):
    """Batches of texts that have a label each.

    Args:
        ids, batch_size, seed, pad_id: as of `TextBatches`.
        labels: the number of each text's label.

    Raises:
        UserError: there are no texts, a text has no tokens, or texts and labels differ in number.
    """

    def __init__(
        self, ids: Sequence[Sequence[int]], labels: Sequence[int], batch_size: int, seed: int, pad_id: int
    ) -> None:
        if len(ids) != len(labels):
            raise UserError(f"{len(ids)} texts but {len(labels)} labels")
        super().__init__(ids, batch_size, seed, pad_id)
        self.labels: Ids = np.asarray(labels, dtype=np.int64)

    def arrays(self, batch: Batch) -> dict[str, Array]:
        """Return tokens and mask (B, T) and labels (B,)."""
        return {"tokens": batch.tokens, "mask": batch.mask, "labels": self.labels[batch.index]}
