"""The pairs of a parallel corpus that are least like translations of each other.

IBM Model 1 (Brown et al. 1993) is learned from the corpus itself, in both directions: each target word comes from one
of the source words, or from none, with equal chances, by a table t(target word | source word) that five rounds of EM
find. The score of a direction is the mean over the words f of a sentence of

    log P(f | other sentence) - 1/2 log p(f),    P = 0.9 Model 1 + 0.1 p,    p(f): the word's share of its side

and that of a pair the sum of both. Taking off half of log p(f) keeps rare words from deciding alone (measured in
docs/experiments.md). Each pair is scored without its own part in the counts (leaving one out), or the wrong translation
of a rare word would be its only witness. A word that was learned from one pair alone, or from none, counts 0. A word is
a run of characters between white space and punctuation, in small letters, or one character where a script has no spaces
(Chinese, Japanese, Thai, Khmer ...); each counts once in a sentence, and of a sentence the first `MOST_WORDS`.

Sums are taken in the order of the pairs and scores rounded, so the result is the same on any machine.
Cost: half a minute of one core and 550 MB for 200,000 pairs of 15 words. Memory: the vocabulary, 100 bytes a pair, and
at most 2 GB of tables: with over `MOST_LINKS` pairs of words each n-th pair is learned from. Disk: 4 bytes a word.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

MOST_WORDS = 200
MOST_LINKS = 1 << 25
_AT_ONCE = 1 << 20  # links
_ROUNDS = 5
_SMOOTHING = 0.1
_DIGITS = 6
_LEAST = 1e-6  # of a count; less is what rounding leaves
_ALONE = (
    "\u0e00-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3041-\u312f\u31a0-\ua4cf\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U0003fffd"
)
_BETWEEN = (
    r"\s!-/:-@\[-`{-~\xa1-\xbf\u060c\u061b\u061f\u0964\u0965\u2000-\u206f\u3000-\u303f\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40"
    r"\uff5b-\uff65"
)
_WORD = re.compile(rf"[{_ALONE}]|[^{_BETWEEN}{_ALONE}]+|\S")


def words(text: str) -> list[str]:
    """Return the first `MOST_WORDS` different words of a text, and its punctuation marks."""
    return list(dict.fromkeys(_WORD.findall(text.lower())))[:MOST_WORDS]


@dataclass(frozen=True)
class Pair:
    """A pair to score; `key`: names it; `learned`: whether the model may learn from it."""

    key: bytes
    source: str
    target: str
    learned: bool


def worst(pairs: Iterable[Pair], share: float, scratch: Path) -> tuple[list[bytes], dict[str, Any]]:
    """Return the keys of the worst pairs, and metrics.

    Args:
        pairs: different pairs.
        share: of all pairs; of equal scores the earlier pairs go first.
        scratch: a folder for files.

    Returns:
        keys: of the worst pairs, in the order of the corpus.
        metrics: `pairs`, the number scored; `median` and `shuffled_median`, the medians of their scores and of those of
            the same sentences in wrong pairs; `like_shuffled`, an estimate of the share of wrong pairs: twice the share
            that scores below the median of wrong ones; `bound`, the highest score removed, or None.
    """
    keys, learned = bytearray(), array("b")
    sides = (_Side(scratch / "source.words"), _Side(scratch / "target.words"))
    for pair in pairs:
        keys += pair.key
        learned.append(pair.learned)
        for side, text in zip(sides, (pair.source, pair.target), strict=True):
            side.add(text)
    count = len(learned)
    if not count:
        return [], {"pairs": 0}
    model = _Model(sides, np.frombuffer(learned, bool))
    scores, shuffled = model.scores()
    order = np.argsort(scores, kind="stable")[: round(share * count)]
    size = len(keys) // count
    middle = float(np.median(shuffled)) if len(shuffled) else 0.0
    metrics = {
        "pairs": count,
        "median": float(np.median(scores)),
        "shuffled_median": middle,
        "like_shuffled": min(1.0, 2 * float(np.mean(scores < middle))),
        "bound": float(scores[order[-1]]) if len(order) else None,
    }
    rounded = {name: round(value, 4) if isinstance(value, float) else value for name, value in metrics.items()}
    return [bytes(keys[size * i : size * (i + 1)]) for i in np.sort(order).tolist()], rounded


class _Side:
    """The sentences of one side as ids of words, on disk."""

    def __init__(self, path: Path) -> None:
        self._path, self._stream = path, open(path, "wb")  # noqa: SIM115  # until `finish`
        self._ids: dict[str, int] = {}
        self._lengths = array("i")

    def add(self, text: str) -> None:
        ids = array("i", [self._ids.setdefault(word, len(self._ids)) for word in words(text)])
        ids.tofile(self._stream)
        self._lengths.append(len(ids))

    @property
    def lengths(self) -> np.ndarray:
        """Return how many words each sentence has."""
        return np.frombuffer(self._lengths, np.int32).astype(np.int64)

    def finish(self, learned: np.ndarray) -> None:
        """Number the words that at least two of the pairs learned from have; all others are left out."""
        self._stream.close()
        lengths = self.lengths
        self._at = np.concatenate([[0], np.cumsum(lengths)])
        self._words = np.memmap(self._path, np.int32, "r") if self._at[-1] else np.zeros(0, np.int32)
        seen = np.zeros(len(self._ids), np.int64)
        for first in range(0, len(learned), _AT_ONCE):
            there = np.repeat(learned[first : first + _AT_ONCE], lengths[first : first + _AT_ONCE])
            block = self._words[self._at[first] : self._at[first] + len(there)]
            seen += np.bincount(block[there], minlength=len(seen))
        known = seen > 1
        self._numbers = np.where(known, np.cumsum(known) - 1, -1)
        self.seen = seen[known]
        self.total = int(seen.sum())  # of all words

    def sentences(self, first: int, end: int, chosen: np.ndarray | None = None) -> _Sentences:
        """Return some sentences; those that are not chosen as empty ones."""
        found = self._numbers[self._words[self._at[first] : self._at[end]]]
        lengths = np.diff(self._at[first : end + 1])
        of = np.repeat(np.arange(end - first), lengths)
        kept = found >= 0 if chosen is None else (found >= 0) & chosen[of]
        return _Sentences(found[kept], np.bincount(of[kept], minlength=end - first), lengths)


@dataclass(frozen=True)
class _Sentences:
    """Sentences of one side.

    Attributes:
        words: their known words, one after another.
        sizes: how many known words each has.
        lengths: how many words each has.
    """

    words: np.ndarray
    sizes: np.ndarray
    lengths: np.ndarray

    @property
    def of(self) -> np.ndarray:
        """Return the sentence of each word."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    def rolled(self, by: int) -> _Sentences:
        """Return them with the first ones at the end."""
        return _Sentences(
            np.roll(self.words, -int(self.sizes[:by].sum())), np.roll(self.sizes, -by), np.roll(self.lengths, -by)
        )


@dataclass(frozen=True)
class _Links:
    """Each known source word of a sentence with each known target word of its translation.

    Attributes:
        sides: the sentences of source and target.
        ends: of source and target, the places in their words that each link joins.
    """

    sides: tuple[_Sentences, _Sentences]
    ends: tuple[np.ndarray, np.ndarray]

    @classmethod
    def of(cls, source: _Sentences, target: _Sentences) -> _Links:
        counts = source.sizes * target.sizes
        pair = np.repeat(np.arange(len(counts)), counts)
        place = np.arange(len(pair)) - np.repeat(np.cumsum(counts) - counts, counts)
        across = target.sizes[pair]
        begins = [(np.cumsum(side.sizes) - side.sizes)[pair] for side in (source, target)]
        return cls((source, target), (begins[0] + place // across, begins[1] + place % across))

    def names(self, target_words: int) -> np.ndarray:
        """Return a number for each link, the same for the same two words."""
        source, target = (side.words[ends] for side, ends in zip(self.sides, self.ends, strict=True))
        return source * target_words + target


class _Direction:
    """Model 1 of the words of one side, given those of the other."""

    def __init__(self, to: int, sides: tuple[_Side, _Side], given: np.ndarray) -> None:
        """`to`: the side, 0 or 1; `given`: the word of the other side for each entry of the table."""
        self._to, self._from, self._given = to, 1 - to, given
        self._seen, self._total = sides[to].seen, sides[to].total
        self._others = len(sides[1 - to].seen)
        even = 1 / max(1, len(self._seen))
        self._table = np.append(np.full(len(given), even), 0.0)  # the last: of links that were not learned
        self._null = np.full(len(self._seen), even)
        self.forget()

    def forget(self) -> None:
        """Set the counts to 0."""
        self._counts, self._null_counts = np.zeros_like(self._table), np.zeros_like(self._null)

    def expect(self, links: _Links, entries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the probability that a word came by each of its links, and from no word."""
        words, ends = links.sides[self._to].words, links.ends[self._to]
        weights, null = self._table[entries], self._null[words]
        sums = np.bincount(ends, weights, len(words)) + null
        return weights / sums[ends], null / sums

    def count(self, links: _Links, entries: np.ndarray) -> None:
        """Add to the counts what is expected."""
        by_link, by_none = self.expect(links, entries)
        np.add.at(self._counts, entries, by_link)
        np.add.at(self._null_counts, links.sides[self._to].words, by_none)

    def maximise(self) -> None:
        """Set the table to the most probable one by the counts."""
        self.finish()
        self._table[:-1] = self._counts[:-1] / self._totals[self._given]
        self._null = self._null_counts / self._null_counts.sum()

    def finish(self) -> None:
        """Add the counts up over the words."""
        self._totals = np.bincount(self._given, self._counts[:-1], self._others)

    def score(self, links: _Links, entries: np.ndarray, learned: np.ndarray) -> np.ndarray:
        """Return the score of each pair.

        Args:
            links, entries: the pairs; entry -1: a link that is not in the table.
            learned: whether the counts hold the pair.
        """
        here, there = links.sides[self._to], links.sides[self._from]
        own, other = links.ends[self._to], links.ends[self._from]
        by_link, by_none = self.expect(links, entries)
        mine = learned[here.of]
        by_link, by_none = np.where(mine[own], by_link, 0.0), np.where(mine, by_none, 0.0)
        counts = self._counts[entries] - by_link
        totals = self._totals[there.words] - np.bincount(other, by_link, len(there.words))
        known = totals[other] > _LEAST  # else only this pair has the word
        by_word = np.clip(np.divide(counts, totals[other], out=np.zeros_like(counts), where=known), 0.0, 1.0)
        none = np.maximum(self._null_counts[here.words] - by_none, 0.0) / self._null_counts.sum()
        model = (np.bincount(own, by_word, len(here.words)) + none) / (1 + there.sizes)[here.of]
        share = (self._seen[here.words] - mine) / self._total
        logs = np.log((1 - _SMOOTHING) * model + _SMOOTHING * share) - np.log(share) / 2
        return np.bincount(here.of, logs, len(here.sizes)) / np.maximum(1, here.lengths)


class _Model:
    """Model 1 in both directions, learned from some of the pairs."""

    def __init__(self, sides: tuple[_Side, _Side], learned: np.ndarray) -> None:
        self._sides = sides
        links = sides[0].lengths * sides[1].lengths
        step = 1 + int(links[learned].sum()) // MOST_LINKS
        self._learned = learned & (np.cumsum(learned) % step == 0)
        for side in sides:
            side.finish(self._learned)
        chunk = np.cumsum(links) // _AT_ONCE
        cuts = [0, *(np.flatnonzero(np.diff(chunk)) + 1).tolist(), len(links)]
        self._chunks = list(pairwise(cuts))
        self._learn()

    def _learn(self) -> None:
        across = len(self._sides[1].seen)
        pieces, waiting = [np.zeros(0, np.int64)], 0
        for first, end in self._chunks:
            pieces.append(_different(self._links(first, end, self._learned[first:end]).names(across)))
            waiting += len(pieces[-1])
            if waiting > 4 * _AT_ONCE:
                pieces, waiting = [_different(np.concatenate(pieces))], 0
        self._names = _different(np.concatenate(pieces))
        given = (self._names // max(1, across), self._names % max(1, across))
        self._directions = [_Direction(to, self._sides, given[1 - to]) for to in (0, 1)]
        kept: list[np.ndarray] = []
        for round_ in range(_ROUNDS):
            for direction in self._directions if round_ else ():
                direction.maximise()
                direction.forget()
            for number, (first, end) in enumerate(self._chunks):
                links = self._links(first, end, self._learned[first:end])
                if not round_:
                    kept.append(self._entries(links).astype(np.int32))
                for direction in self._directions:
                    direction.count(links, kept[number])
        for direction in self._directions:
            direction.finish()

    def _links(self, first: int, end: int, chosen: np.ndarray) -> _Links:
        source, target = (side.sentences(first, end, chosen) for side in self._sides)
        return _Links.of(source, target)

    def _entries(self, links: _Links) -> np.ndarray:
        """Return the entry of each link in the tables, -1 where there is none."""
        names, of = np.unique(links.names(len(self._sides[1].seen)), return_inverse=True)
        if not len(self._names):
            return np.full(len(of), -1)
        places = np.minimum(np.searchsorted(self._names, names), len(self._names) - 1)
        return np.where(self._names[places] == names, places, -1)[of]

    def scores(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the score of each pair, and of wrong pairs: of each chunk's sentences, in another order."""
        right, wrong = [], []
        for first, end in self._chunks:
            source, target = (side.sentences(first, end) for side in self._sides)
            right.append(self._score(_Links.of(source, target), self._learned[first:end]))
            if (half := (end - first) // 2) > 0:
                wrong.append(self._score(_Links.of(source, target.rolled(half)), np.zeros(end - first, bool)))
        return np.concatenate(right), np.concatenate(wrong) if wrong else np.zeros(0)

    def _score(self, links: _Links, learned: np.ndarray) -> np.ndarray:
        entries = self._entries(links)
        return np.round(sum(direction.score(links, entries, learned) for direction in self._directions), _DIGITS)


def _different(numbers: np.ndarray) -> np.ndarray:
    """Return the different ones, sorted; many times as fast as `np.unique`, which hashes them."""
    ordered = np.sort(numbers)
    return ordered[np.diff(ordered, prepend=-1) > 0]
