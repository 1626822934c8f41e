"""Batches of labelled texts, padded only to the longest text of the batch.

An epoch shuffles the texts by a key, sorts them by length within pools of a few dozen batches (alternately up and
down), cuts the row into equal batches (the last may be smaller) and visits them in a keyed order: all a function of
(seed, epoch).

Letters: B texts, T time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lexmill.base.errors import UserError
from lexmill.data.permutation import fold, permute

if TYPE_CHECKING:
    from lexmill.tokenizers import Tokenizer

Ids = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

POOL_BATCHES = 32  # batches sorted together: enough for little padding, few enough to keep neighbours random


def encode(tokenizer: Tokenizer, texts: Sequence[str], max_tokens: int) -> list[list[int]]:
    """Return the ids of texts between the tokenizer's begin and end tokens, cut to at most `max_tokens` each.

    Raises:
        UserError: a text is not Unicode.
    """
    first, last = tokenizer.bos_id, tokenizer.eos_id
    return [[first, *ids[: max_tokens - 2], last] for ids in tokenizer.encode_batch(texts)]


@dataclass(frozen=True)
class Batch:
    """Texts, padded on the right; the mask is True at real tokens."""

    index: Ids  # (B,) positions of the texts
    tokens: Ids  # (B, T)
    mask: Mask  # (B, T)
    labels: Ids  # (B,)


class ClassificationBatches:
    """The global batch of each step, a pure function of (seed, step).

    Args:
        ids: of each text, special tokens included.
        labels: the number of each text's label.
        batch_size: texts in a global batch.
        seed: the data seed.
        pad_id: the padding token.

    Raises:
        UserError: there are no texts, a text has no tokens, or texts and labels differ in number.
    """

    def __init__(
        self, ids: Sequence[Sequence[int]], labels: Sequence[int], batch_size: int, seed: int, pad_id: int
    ) -> None:
        if len(ids) != len(labels):
            raise UserError(f"{len(ids)} texts but {len(labels)} labels")
        if not ids:
            raise UserError("there are no labelled texts to make batches of")
        self.ids, self.batch_size, self.seed, self.pad_id = ids, batch_size, seed, pad_id
        self.labels: Ids = np.asarray(labels, dtype=np.int64)
        self.lengths: Ids = np.array([len(text) for text in ids], dtype=np.int64)
        if not self.lengths.all():
            raise UserError(f"text {int(np.argmin(self.lengths))} has no tokens, not even special ones")
        self._row: tuple[int, Ids] | None = None

    @property
    def steps_per_epoch(self) -> int:
        return -(-len(self.ids) // self.batch_size)

    def epoch(self, step: int) -> float:
        """Return the passes over the texts completed when `step` (from 0) begins."""
        return step / self.steps_per_epoch

    def batch(self, step: int) -> Batch:
        """Return the global batch of a step, counted from 0."""
        return self.rows(step, 0, 1)

    def rows(self, step: int, rank: int, world: int) -> Batch:
        """Return rows rank, rank + world, ... of the global batch of a step.

        The last batch of an epoch may have fewer rows than there are ranks; some ranks then get 0 rows.
        """
        epoch, place = divmod(step, self.steps_per_epoch)
        number = permute(place, self.steps_per_epoch, fold(self.seed, "batches", epoch))
        start = number * self.batch_size
        return self.collate(self._order(epoch)[start : start + self.batch_size][rank::world])

    def evaluation_batches(self) -> Iterator[Batch]:
        """Yield every text once, sorted by length; `Batch.index` says which."""
        row = np.argsort(self.lengths, kind="stable").astype(np.int64)
        for start in range(0, len(row), self.batch_size):
            yield self.collate(row[start : start + self.batch_size])

    def _order(self, epoch: int) -> Ids:
        if self._row is None or self._row[0] != epoch:
            n, pool_size = len(self.ids), POOL_BATCHES * self.batch_size
            order = permute(np.arange(n, dtype=np.int64), n, fold(self.seed, "texts", epoch))
            pools = []
            for i, start in enumerate(range(0, n, pool_size)):
                pool = order[start : start + pool_size]
                pool = pool[np.argsort(self.lengths[pool], kind="stable")]
                pools.append(pool if i % 2 == 0 else pool[::-1])
            self._row = (epoch, np.concatenate(pools))
        return self._row[1]

    def collate(self, index: Ids) -> Batch:
        """Pad these texts into a batch."""
        width = int(self.lengths[index].max(initial=1))
        tokens = np.full((len(index), width), self.pad_id, dtype=np.int64)
        for i, text in enumerate(index):
            tokens[i, : self.lengths[text]] = self.ids[text]
        mask = np.arange(width)[None, :] < self.lengths[index][:, None]
        return Batch(index=index, tokens=tokens, mask=mask, labels=self.labels[index])
