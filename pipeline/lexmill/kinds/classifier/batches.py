"""Batches of labelled texts, drawn at random, and how to cut one so that little is padded.

An epoch shuffles the texts by a key and cuts the row into equal batches (the last may be smaller): a function of (seed,
epoch). Batches of texts of like length would need less padding, but where length follows the label, as short ham and
long spam, each would have one label. So a batch is random, its rows are sorted by length, and it goes through the
network in parts, each padded to its own longest text.

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


def encode(tokenizer: Tokenizer, texts: Sequence[str], max_tokens: int) -> list[list[int]]:
    """Return the ids of texts between the tokenizer's begin and end tokens, cut to at most `max_tokens` each.

    Raises:
        UserError: a text is not Unicode.
    """
    first, last = tokenizer.bos_id, tokenizer.eos_id
    return [[first, *ids[: max_tokens - 2], last] for ids in tokenizer.encode_batch(texts)]


def cut(lengths: Ids, pass_cost: int) -> list[int]:
    """Return where the parts of a batch start, and its end: the cut with the least padding and passes.

    A part costs rows x longest + `pass_cost` tokens; the sum over the parts is the least there is (dynamic programming,
    B² operations).

    Args:
        lengths: of the rows, falling, (B,).
        pass_cost: what a pass through the network costs beside its tokens, in tokens.
    """
    starts = np.arange(len(lengths))
    least, last_start = [0], [0]  # of the first 0, 1, ... rows: the cost, and where their last part starts
    for end in range(1, len(lengths) + 1):
        costs = np.array(least) + lengths[:end] * (end - starts[:end]) + pass_cost
        last_start.append(int(np.argmin(costs)))
        least.append(int(costs[last_start[-1]]))
    bounds = [len(lengths)]
    while bounds[-1]:
        bounds.append(last_start[bounds[-1]])
    return bounds[::-1]


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
        """Return rows rank, rank + world, ... of the global batch of a step, the longest text first.

        The last batch of an epoch may have fewer rows than there are ranks; some ranks then get 0 rows.
        """
        epoch, place = divmod(step, self.steps_per_epoch)
        n, start = len(self.ids), place * self.batch_size
        places = np.arange(start, min(start + self.batch_size, n), dtype=np.int64)
        texts = permute(places, n, fold(self.seed, "texts", epoch))
        return self.collate(texts[np.argsort(-self.lengths[texts], kind="stable")][rank::world])

    def evaluation_batches(self) -> Iterator[Batch]:
        """Yield every text once, sorted by length; `Batch.index` says which."""
        row = np.argsort(self.lengths, kind="stable").astype(np.int64)
        for start in range(0, len(row), self.batch_size):
            yield self.collate(row[start : start + self.batch_size])

    def collate(self, index: Ids) -> Batch:
        """Pad these texts into a batch."""
        width = int(self.lengths[index].max(initial=1))
        tokens = np.full((len(index), width), self.pad_id, dtype=np.int64)
        for i, text in enumerate(index):
            tokens[i, : self.lengths[text]] = self.ids[text]
        mask = np.arange(width)[None, :] < self.lengths[index][:, None]
        return Batch(index=index, tokens=tokens, mask=mask, labels=self.labels[index])
