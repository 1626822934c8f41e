"""What an encoder must beat: guesses at a masked token from counts over the tokens of train.

unigram     how frequent each token is
neighbours  which tokens were between the two neighbours, backed off to those after the left and before the right one
Both read a masked token with all others unmasked, which is easier than an encoder's task.
Cost: seconds a million tokens; memory about 100 bytes a token of train.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lexmill import params, tokenizers
from lexmill.base import layout
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.data.masking import Vocabulary, vocabulary
from lexmill.decoding.masked_tokens import Scores
from lexmill.evaluation.bootstrap import Resampling
from lexmill.evaluation.masked_tokens import block_row, blocks, summarise
from lexmill.evaluation.rows import Row
from lexmill.evaluation.subject import Baseline

if TYPE_CHECKING:
    from lexmill.tokenizers import Tokenizer

STRENGTHS = (1.0, 3.0, 10.0, 30.0)  # occurrences that what is backed off to weighs

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Texts = Sequence[Ids]


def baselines(chosen: params.Baseline, corpus: PreparedCorpus, how: Resampling) -> Iterator[Baseline]:
    """Yield both."""
    assert chosen.tokenizer is not None
    tokenizer = tokenizers.load(layout.tokenizer(chosen.tokenizer))
    words = vocabulary(tokenizer)
    train, valid = ([_ids(tokenizer, text) for _, _, text in blocks(corpus.records(one))] for one in ("train", "valid"))
    counts = Counts(train, words, tokenizer.bos_id, tokenizer.eos_id)
    test = blocks(corpus.records("test"))
    texts = [_ids(tokenizer, text) for _, _, text in test]
    # An untuned baseline would be too easy to beat.
    strength = min(STRENGTHS, key=lambda one: sum(counts.score(text, one).nats.sum() for text in valid))
    for name, value in (("unigram", None), ("neighbours", strength)):
        rows: list[Row] = [
            block_row(block, ids.tolist(), counts.score(ids, value), words.special, tokenizer)
            for block, ids in zip(test, texts, strict=True)
        ]
        yield Baseline(name, rows, summarise(rows, corpus.unit, how))


def _ids(tokenizer: Tokenizer, text: str) -> Ids:
    return np.array(tokenizer.encode(text), dtype=np.int64)


class Counts:
    """Counts of tokens alone, after a token, before one, and between two.

    The probability of w between l and r is (c(l w r) + s P) / (c(l . r) + s), where P is the mean of the two
    probabilities after l and before r, each (c + s Q) / (n + s) likewise, and Q the share of w, each token counted
    once more.

    Args:
        texts: of train, as ids.
        bos_id, eos_id: what is before and after each text.
    """

    def __init__(self, texts: Texts, words: Vocabulary, bos_id: int, eos_id: int) -> None:
        self.words, self.size, self.ends = words, len(words.special), (bos_id, eos_id)
        left, middle, right = (np.concatenate(one) for one in zip(*(self._around(text) for text in texts), strict=True))
        ordinary = ~words.special[middle]
        left, middle, right = left[ordinary], middle[ordinary], right[ordinary]
        self.alone = np.bincount(middle, minlength=self.size) + (~words.special).astype(np.int64)
        self.share: Floats = self.alone / self.alone.sum()
        self.most_frequent = np.array([self.share.argmax()])
        self.after, self.before = _Table(left, middle, self.size), _Table(right, middle, self.size)
        self.between = _Table(left * self.size + right, middle, self.size)

    def _around(self, text: Ids) -> tuple[Ids, Ids, Ids]:
        whole = np.concatenate([[self.ends[0]], text, [self.ends[1]]]).astype(np.int64)
        return whole[:-2], whole[1:-1], whole[2:]

    def probabilities(self, left: int, right: int, tokens: Ids, strength: float | None) -> Floats:
        """Return the probabilities of some tokens between two neighbours; strength None: alone."""
        share = self.share[tokens]
        if strength is None:
            return share
        sides = [table.mixed(key, tokens, share, strength) for table, key in ((self.after, left), (self.before, right))]
        return self.between.mixed(left * self.size + right, tokens, (sides[0] + sides[1]) / 2, strength)

    def score(self, text: Ids, strength: float | None) -> Scores:
        """Score each token of a text; special ones are left out."""
        nats, found = np.zeros(len(text)), np.zeros(len(text), dtype=np.bool_)
        for i, (left, token, right) in enumerate(zip(*self._around(text), strict=True)):
            if self.words.special[token]:
                continue
            likely = [self.most_frequent]
            if strength is not None:  # a token in no table is less probable than the most frequent one
                likely += [self.after.row(left)[0], self.before.row(right)[0]]
            tokens = np.unique(np.concatenate([[token], *likely]))
            shares = self.probabilities(int(left), int(right), tokens, strength)
            nats[i] = -np.log(shares[np.searchsorted(tokens, token)])
            found[i] = tokens[shares.argmax()] == token
        return Scores(nats, found)


class _Table:
    """Counts of tokens for each key."""

    def __init__(self, keys: Ids, tokens: Ids, size: int) -> None:
        both, self.counts = np.unique(keys * size + tokens, return_counts=True)
        self.tokens = both % size
        self.keys, self.starts = np.unique(both // size, return_index=True)
        self.starts = np.append(self.starts, len(both))

    def row(self, key: int) -> tuple[Ids, Ids]:
        """Return the tokens of a key, sorted, and their counts."""
        place = int(np.searchsorted(self.keys, key))
        known = place < len(self.keys) and self.keys[place] == key
        some = slice(self.starts[place], self.starts[place + 1]) if known else slice(0)
        return self.tokens[some], self.counts[some]

    def mixed(self, key: int, tokens: Ids, below: Floats, strength: float) -> Floats:
        """Return the probabilities of some tokens for a key, with `strength` occurrences of those `below`."""
        known, counts = self.row(key)
        if not len(known):
            return below
        place = np.minimum(np.searchsorted(known, tokens), len(known) - 1)
        own = np.where(known[place] == tokens, counts[place], 0)
        mixed: Floats = (own + strength * below) / (counts.sum() + strength)
        return mixed
