"""Batches of sentence pairs by token count, with little padding.

An epoch shuffles the pairs by a key, sorts them by (target length, source length) within large pools, alternately
up and down so that neighbouring pools meet at similar lengths, and cuts the row greedily: a batch takes pairs while
rows x longest target and rows x longest source both stay within `batch_tokens`. The batches are visited in a keyed
order: all a function of (seed, epoch). The number of batches varies a little between epochs, so a step is located by
the running count of batches.

Of a mixture, an epoch has as many pairs as its members together, dealt out by weight (`lexmill.data.mixture`): each
member goes through its own pairs in its own order, a small one again and again.

Letters: B pairs, S source length, T target length, both with the end token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from lexmill.base.errors import UserError
from lexmill.data.mixture import MixedShards, Shares
from lexmill.data.permutation import fold, permute
from lexmill.data.shards import TokenShards
from lexmill.data.texts import pad

Ids = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Side = TokenShards | MixedShards

POOL = 8192  # pairs sorted together: enough for little padding, few enough to keep neighbours random


@dataclass(frozen=True)
class Batch:
    """Sentence pairs, padded on the right. Masks are True at real tokens."""

    index: Ids  # (B,) positions of the pairs in the split
    source: Ids  # (B, S) ends with the end token
    source_mask: Mask  # (B, S)
    target_in: Ids  # (B, T) starts with the beginning token
    target_out: Ids  # (B, T) ends with the end token
    target_mask: Mask  # (B, T)


def cut(source: Ids, target: Ids, batch_tokens: int) -> Ids:
    """Return where batches start in a row of pairs with these lengths, and its end: (batches + 1,).

    Each batch is the longest run with rows x max(source) and rows x max(target) <= batch_tokens; every length is
    at most batch_tokens.
    """
    longest = np.maximum(source, target)
    bounds, start = [0], 0
    while start < len(longest):
        window = np.maximum.accumulate(longest[start : start + batch_tokens // int(longest[start])])
        fits = window * np.arange(1, len(window) + 1) <= batch_tokens
        start += len(window) if fits.all() else int(np.argmin(fits))
        bounds.append(start)
    return np.array(bounds, dtype=np.int64)


class ParallelBatches:
    """The global batch of each step, a pure function of (seed, step).

    Args:
        source, target: the two sides of one split, of equal length, or of a mixture.
        batch_tokens: most tokens of either side in a global batch, padding included.
        seed: the data seed.
        max_positions: a pair with a longer side (end token included) is left out.
        begins: ids that each source begins with, by member of a mixture; empty: nothing.
        redraw: other ids of the same sentence, from its ids without the end token and a seed; for `rows` only. The
            lengths that batches are made by stay those of the shards.

    Attributes:
        dropped: how many pairs were left out, longer than max_positions or batch_tokens.

    Raises:
        UserError: the sides differ in length, or no pair is left.
    """

    def __init__(
        self,
        source: Side,
        target: Side,
        batch_tokens: int,
        seed: int,
        max_positions: int,
        *,
        begins: Sequence[Sequence[int]] = (),
        redraw: Callable[[list[int], int], list[int]] | None = None,
    ) -> None:
        if len(source) != len(target):
            raise UserError(f"{len(source)} source sentences but {len(target)} target sentences", source.folder)
        self.source, self.target, self.batch_tokens, self.seed = source, target, batch_tokens, seed
        self.max_positions, self.redraw = max_positions, redraw
        starts = source.starts if isinstance(source, MixedShards) else np.array([0, len(source)])
        self.starts, self.begins = starts, begins or [()] * (len(starts) - 1)
        source_lengths = source.lengths + np.repeat(np.array(list(map(len, self.begins))), np.diff(starts))
        target_lengths = target.lengths
        longest = np.maximum(source_lengths, target_lengths)
        self.pairs: Ids = np.flatnonzero(longest <= min(max_positions, batch_tokens)).astype(np.int64)
        self.dropped = len(source) - len(self.pairs)
        self.shares = Shares(source.weights) if isinstance(source, MixedShards) else None
        self.own: list[Ids] = [
            np.arange(*np.searchsorted(self.pairs, part), dtype=np.int64) for part in pairwise(starts)
        ]  # of each member, places in `pairs`
        if not all(map(len, self.own)):
            names = self.shares.names if self.shares else [""]
            empty = next(name for name, own in zip(names, self.own, strict=True) if not len(own))
            of = f" of {empty}" if empty else ""
            raise UserError(
                f"no pair of the {source.split} split{of} has at most {min(max_positions, batch_tokens)} tokens a side"
                f" ({self.dropped} are longer); raise max_positions or batch_tokens",
                source.folder,
            )
        self.source_lengths: Ids = source_lengths[self.pairs]
        self.target_lengths: Ids = target_lengths[self.pairs]
        self._first = [0]  # the step each known epoch starts at
        self._plan: tuple[int, Ids, Ids] | None = None

    def plan(self, epoch: int) -> tuple[Ids, Ids]:
        """Return an epoch's row of pairs (positions in `pairs`) and the bounds of its batches before shuffling."""
        n, order, pools = len(self.pairs), self._order(epoch), []
        for number, start in enumerate(range(0, n, POOL)):
            pool = order[start : start + POOL]
            pool = pool[np.lexsort((self.source_lengths[pool], self.target_lengths[pool]))]
            pools.append(pool if number % 2 == 0 else pool[::-1])
        row = np.concatenate(pools)
        return row, cut(self.source_lengths[row], self.target_lengths[row], self.batch_tokens)

    def _order(self, epoch: int) -> Ids:
        """Return the pairs of an epoch (positions in `pairs`), in a random order."""
        n = len(self.pairs)
        if self.shares is None:
            return permute(np.arange(n, dtype=np.int64), n, fold(self.seed, "pairs", epoch))
        member, place = self.shares.deal(np.arange(epoch * n, (epoch + 1) * n, dtype=np.int64))
        order = np.empty(n, dtype=np.int64)
        for number, (name, own) in enumerate(zip(self.shares.names, self.own, strict=True)):
            here = np.flatnonzero(member == number)
            through, at = np.divmod(place[here], len(own))
            for one in np.unique(through).tolist():
                now = through == one
                order[here[now]] = own[permute(at[now], len(own), fold(self.seed, "pairs", name, one))]
        return order

    def member_epochs(self, step: int) -> dict[str, float]:
        """Return the passes over each member of a mixture when `step` begins, nearly; {} for a single corpus."""
        if self.shares is None:
            return {}
        counts = self.shares.counts(round(self.epoch(step) * len(self.pairs)))
        return {name: counts[name] / len(own) for name, own in zip(self.shares.names, self.own, strict=True)}

    def _planned(self, epoch: int) -> tuple[Ids, Ids]:
        if self._plan is None or self._plan[0] != epoch:
            self._plan = (epoch, *self.plan(epoch))
        return self._plan[1], self._plan[2]

    def _locate(self, step: int) -> tuple[int, int]:
        """Return the epoch of a step and the step's place in it."""
        while self._first[-1] <= step:
            _, bounds = self._planned(len(self._first) - 1)
            self._first.append(self._first[-1] + len(bounds) - 1)
        epoch = int(np.searchsorted(self._first, step, side="right")) - 1
        return epoch, step - self._first[epoch]

    @property
    def steps_per_epoch(self) -> int:
        """Batches of the first epoch; others differ by a few."""
        self._locate(0)
        return self._first[1]

    def epoch(self, step: int) -> float:
        """Return the passes over the split completed when `step` (from 0) begins."""
        epoch, place = self._locate(step)
        return epoch + place / (self._first[epoch + 1] - self._first[epoch])

    def batch(self, step: int) -> Batch:
        """Return the global batch of a step, counted from 0."""
        return self.rows(step, 0, 1)

    def rows(self, step: int, rank: int, world: int) -> Batch:
        """Return rows rank, rank + world, ... of the global batch of a step.

        A batch of long sentences may have fewer rows than there are ranks; some ranks then get 0 rows.
        """
        epoch, place = self._locate(step)
        row, bounds = self._planned(epoch)
        batches = len(bounds) - 1
        number = permute(place, batches, fold(self.seed, "batches", epoch))
        places = np.arange(bounds[number], bounds[number + 1])[rank::world]
        return self.collate(row[places], [f"{epoch} {place}" for place in places] if self.redraw else None)

    def evaluation_batches(self) -> Iterator[Batch]:
        """Yield every pair that was not dropped, once, sorted by length; `Batch.index` says which."""
        row = np.lexsort((self.source_lengths, self.target_lengths)).astype(np.int64)
        bounds = cut(self.source_lengths[row], self.target_lengths[row], self.batch_tokens)
        for start, stop in pairwise(bounds):
            yield self.collate(row[start:stop])

    def padding_share(self, epoch: int = 0) -> float:
        """Return the share of padding in an epoch's tokens, both sides."""
        row, bounds = self._planned(epoch)
        padded = 0
        for lengths in (self.source_lengths[row], self.target_lengths[row]):
            padded += int((np.maximum.reduceat(lengths, bounds[:-1]) * np.diff(bounds)).sum())
        real = int(self.source_lengths[row].sum() + self.target_lengths[row].sum())
        return (padded - real) / padded

    def collate(self, rows: Ids, draws: Sequence[str] | None = None) -> Batch:
        """Pad the pairs at these positions of `pairs` into a batch; `draws` names the draw of each, if any."""
        index = self.pairs[rows]
        members = np.searchsorted(self.starts, index, side="right") - 1
        sources = zip(members.tolist(), self._documents(self.source, index, draws), strict=True)
        source, source_mask = pad([[*self.begins[member], *ids] for member, ids in sources], self.source.pad_id)
        targets = self._documents(self.target, index, draws)
        target_out, target_mask = pad(targets, self.target.pad_id)
        target_in, _ = pad([[self.target.bos_id, *ids[:-1]] for ids in targets], self.target.pad_id)
        return Batch(index, source, source_mask, target_in, target_out, target_mask)

    def _documents(self, side: Side, index: Ids, draws: Sequence[str] | None) -> list[list[int]]:
        """Return the ids of these sentences, end token included; where a draw has too many, those of the shards."""
        found = [side.document(i).tolist() for i in index.tolist()]
        if draws is None or self.redraw is None:
            return found
        drawn = []
        room = self.max_positions - (max(map(len, self.begins)) if side is self.source else 0)
        for ids, name in zip(found, draws, strict=True):
            other = [*self.redraw(ids[:-1], fold(self.seed, "subwords", side is self.source, name)), ids[-1]]
            drawn.append(other if len(other) <= room else ids)
        return drawn
