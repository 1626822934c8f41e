"""Batches of masked pieces of documents, alone or in pairs, each a pure function of (seed, step).

A document is cut into pieces of at most so many tokens, equal in length to within one; an epoch reads each once, in a
random order. What is masked, where a piece is cut in two and what follows it are drawn anew in each epoch, from the
seed, the epoch and the piece, whatever the number of devices.

Letters: B pieces, T tokens, N pieces of a split.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from lexmill.base.errors import UserError
from lexmill.data.masking import Ids, Plan, mask
from lexmill.data.permutation import fold, permute
from lexmill.data.shards import TokenShards
from lexmill.data.texts import pad, piece_lengths
from lexmill.models.common.cross_entropy import IGNORED

Array = npt.NDArray[Any]
Pairs = Literal["none", "next_sentence", "sentence_order"]

_NARROWEST = 0.25  # the first segment has at least this share of a piece, and so has the second


class Pieces:
    """The documents of a split, without their end tokens, in pieces.

    Args:
        most: tokens in a piece.
        least: shorter pieces are left out.

    Attributes:
        starts, lengths, documents: (N,) of each piece: its first token, its tokens, the number of its document.

    Raises:
        UserError: there is no piece.
    """

    def __init__(self, shards: TokenShards, most: int, least: int = 1) -> None:
        self.shards = shards
        starts: list[int] = []
        lengths: list[int] = []
        documents: list[int] = []
        for i in range(len(shards)):
            at = int(shards.offsets[i])
            for length in piece_lengths(int(shards.offsets[i + 1]) - 1 - at, most):
                if length >= least:
                    starts.append(at)
                    lengths.append(length)
                    documents.append(i)
                at += length
        if not starts:
            raise UserError(f"the {shards.split} split holds no document of {least} tokens or more", shards.folder)
        self.starts, self.lengths, self.documents = (np.array(one, np.int64) for one in (starts, lengths, documents))

    def __len__(self) -> int:
        return len(self.starts)

    def tokens(self, i: int) -> Ids:
        """Return the ids of a piece."""
        found: Ids = np.asarray(self.shards.tokens[int(self.starts[i]) : int(self.starts[i] + self.lengths[i])])
        return found.astype(np.int64)


@dataclass(frozen=True)
class Reading:
    """How pieces become rows: the tokens around them, what is masked, what follows what."""

    bos_id: int
    eos_id: int
    pad_id: int
    plan: Plan
    pairs: Pairs


class MaskedBatches:
    """The batches of a split.

    Args:
        pieces: of the split.
        size: B of a global batch.
        seed: the data seed.

    Raises:
        UserError: sentences of other documents are asked for, but there is one document.
    """

    def __init__(self, pieces: Pieces, how: Reading, size: int, seed: int) -> None:
        if how.pairs == "next_sentence" and len(np.unique(pieces.documents)) < 2:
            raise UserError(
                f"pairs: next_sentence draws half of the second sentences from another document, but the"
                f" {pieces.shards.split} split has one; cut it into documents (`reader.document`), or choose"
                " sentence_order or none",
                pieces.shards.folder,
            )
        self.pieces, self.how, self.size, self.seed = pieces, how, size, seed

    @property
    def steps_per_epoch(self) -> int:
        return -(-len(self.pieces) // self.size)

    def epoch(self, step: int) -> float:
        """Return the passes over the pieces completed when `step` (from 0) begins."""
        return step / self.steps_per_epoch

    def rows(self, step: int, rank: int, world: int) -> dict[str, Array]:
        """Return rows rank, rank + world, ... of the global batch of a step, the longest piece first."""
        epoch, place = divmod(step, self.steps_per_epoch)
        n, start = len(self.pieces), place * self.size
        places = np.arange(start, min(start + self.size, n), dtype=np.int64)
        index = permute(places, n, fold(self.seed, "pieces", epoch))
        index = index[np.argsort(-self.pieces.lengths[index], kind="stable")]
        return self.collate(index[rank::world], str(epoch))

    def evaluation_batches(self) -> Iterator[dict[str, Array]]:
        """Yield every piece once, by length, the same each time."""
        order = np.argsort(-self.pieces.lengths, kind="stable")
        for start in range(0, len(order), self.size):
            yield self.collate(order[start : start + self.size], "evaluation")

    def collate(self, index: Ids, epoch: str) -> dict[str, Array]:
        """Return the arrays of some pieces: (B, T) tokens as the network reads them, mask, true at real tokens,
        labels, the right ids at masked positions and `IGNORED` elsewhere; uniform noise for a generator; of pairs
        segments, and follows (B,), 0 where the second segment follows the first, else 1.
        """
        generators = [np.random.default_rng(fold(self.seed, "masks", epoch, int(i))) for i in index]
        rows = [self._row(int(i), generator) for i, generator in zip(index, generators, strict=True)]
        order = np.argsort([-len(row.tokens) for row in rows], kind="stable")  # one from elsewhere may be shorter
        rows = [rows[i] for i in order]
        tokens, real = pad([row.tokens for row in rows], self.how.pad_id)
        found: dict[str, Array] = {"tokens": tokens, "mask": real}
        found["labels"] = pad([row.labels for row in rows], IGNORED)[0]
        if not self.how.plan.keep:
            found["noise"] = np.stack([generators[i].random(tokens.shape[1]) for i in order]) if rows else tokens * 0.0
        if self.how.pairs != "none":
            found["segments"] = pad([row.segments for row in rows])[0]
            found["follows"] = np.array([row.follows for row in rows], dtype=np.int64)
        return found

    def _row(self, i: int, generator: np.random.Generator) -> _Row:
        how, ids = self.how, self.pieces.tokens(i)
        first, second, follows = ids, ids[:0], 0
        if how.pairs != "none":
            low = max(1, int(_NARROWEST * len(ids)))
            at = int(generator.integers(low, max(low, len(ids) - low) + 1))
            first, second = ids[:at], ids[at:]
            follows = int(generator.random() < 0.5)
            if follows and how.pairs == "sentence_order":
                first, second = second, first
            elif follows:
                second = self._elsewhere(i, len(second), generator)
        segments = [first] if how.pairs == "none" else [first, second]
        ends = [np.array([how.eos_id])] * len(segments)
        whole = np.concatenate([[how.bos_id], *(one for both in zip(segments, ends, strict=True) for one in both)])
        numbers = np.repeat(np.arange(len(segments)), [len(one) + 1 for one in segments])
        tokens, chosen = mask(whole, how.plan, generator)
        labels = np.where(chosen, whole, IGNORED)
        return _Row(tokens.tolist(), labels.tolist(), [0, *numbers.tolist()], follows)

    def _elsewhere(self, i: int, length: int, generator: np.random.Generator) -> Ids:
        """Return at most `length` tokens from a random place of another document."""
        documents = self.pieces.documents
        first, last = (int(np.searchsorted(documents, documents[i], side)) for side in ("left", "right"))
        other = int(generator.integers(0, len(documents) - (last - first)))
        ids = self.pieces.tokens(other if other < first else other + (last - first))
        start = int(generator.integers(0, max(1, len(ids) - length + 1)))
        return ids[start : start + length]


@dataclass(frozen=True)
class _Row:
    """A piece: tokens, labels and segments, (T,) each, and whether its second segment follows, 0, or not, 1."""

    tokens: list[int]
    labels: list[int]
    segments: list[int]
    follows: int
