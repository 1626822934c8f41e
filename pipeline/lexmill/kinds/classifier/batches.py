"""Batches of labelled texts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lexmill.base.errors import UserError
from lexmill.data.permutation import fold, permute
from lexmill.data.texts import Array, Batch, Ids, TextBatches


class ClassificationBatches(TextBatches):
    """Batches of texts that have a label each.

    Args:
        ids, batch_size, seed, pad_id: as of `TextBatches`.
        labels: the number of each text's label.
        balanced: draw a text of each label in turn, each label's in an order of its own, over and over; an epoch then
            is as many texts as there are, those of rare labels several times.

    Raises:
        UserError: there are no texts, a text has no tokens, or texts and labels differ in number.
    """

    def __init__(
        self,
        ids: Sequence[Sequence[int]],
        labels: Sequence[int],
        batch_size: int,
        seed: int,
        pad_id: int,
        *,
        balanced: bool = False,
    ) -> None:
        if len(ids) != len(labels):
            raise UserError(f"{len(ids)} texts but {len(labels)} labels")
        super().__init__(ids, batch_size, seed, pad_id)
        self.labels: Ids = np.asarray(labels, dtype=np.int64)
        self._by_label = [np.flatnonzero(self.labels == label) for label in np.unique(self.labels)] if balanced else []

    def rows(self, step: int, rank: int, world: int) -> Batch:
        if not self._by_label:
            return super().rows(step, rank, world)
        epoch, place = divmod(step, self.steps_per_epoch)
        start = place * self.batch_size
        stop = min(start + self.batch_size, len(self.ids))
        turns, label = np.divmod(np.arange(start, stop) + epoch * len(self.ids), len(self._by_label))
        texts = np.array([self._drawn(*one) for one in zip(label.tolist(), turns.tolist(), strict=True)])
        return self.collate(texts[np.argsort(-self.lengths[texts], kind="stable")][rank::world])

    def _drawn(self, label: int, turn: int) -> int:
        """Return the text that a label gives at its turn (from 0)."""
        texts = self._by_label[label]
        through, place = divmod(turn, len(texts))
        order = permute(np.array([place]), len(texts), fold(self.seed, "balanced", label, through))
        return int(texts[order[0]])

    def arrays(self, batch: Batch) -> dict[str, Array]:
        """Return tokens and mask (B, T) and labels (B,)."""
        return {"tokens": batch.tokens, "mask": batch.mask, "labels": self.labels[batch.index]}
