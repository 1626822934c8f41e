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
        ids, batch_size, seed, pad_id, counts: as of `TextBatches`.
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
        counts: Sequence[int] | None = None,
        balanced: bool = False,
    ) -> None:
        texts = len(ids if counts is None else counts)
        if texts != len(labels):
            raise UserError(f"{texts} texts but {len(labels)} labels")
        super().__init__(ids, batch_size, seed, pad_id, counts)
        self.labels: Ids = np.asarray(labels, dtype=np.int64)
        self._by_label = [np.flatnonzero(self.labels == label) for label in np.unique(self.labels)] if balanced else []

    def rows(self, step: int, rank: int, world: int) -> Batch:
        if not self._by_label:
            return super().rows(step, rank, world)
        epoch, place = divmod(step, self.steps_per_epoch)
        start = place * self.batch_size
        stop = min(start + self.batch_size, len(self))
        turns, label = np.divmod(np.arange(start, stop) + epoch * len(self), len(self._by_label))
        given = np.array([self._given(*one) for one in zip(label.tolist(), turns.tolist(), strict=True)])
        return self.drawn(given[:, 0], given[:, 1], rank, world)

    def _given(self, label: int, turn: int) -> tuple[int, int]:
        """Return the text that a label gives at its turn (from 0), and how often it has given it before."""
        texts = self._by_label[label]
        through, place = divmod(turn, len(texts))
        order = permute(np.array([place]), len(texts), fold(self.seed, "balanced", label, through))
        return int(texts[order[0]]), through

    def arrays(self, batch: Batch) -> dict[str, Array]:
        """Return tokens and mask (B, T), labels and the number of the text (B,)."""
        return {"tokens": batch.tokens, "mask": batch.mask, "labels": self.labels[batch.index], "texts": batch.index}
