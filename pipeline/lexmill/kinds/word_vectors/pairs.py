"""Pairs of a centre and a context in running text, as skip-gram learns from them (Mikolov et al. 2013).

In each epoch frequent tokens are left out at random, then each centre draws how far its contexts reach, from 1 to the
window. Both are functions of (seed, epoch). Unknown and special tokens are left out always, before anything is counted;
no pair crosses the end of a document.

Cost of an epoch: about 0.1 s a million tokens, at its first batch; memory 25 bytes a token of the split.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lexmill.data.permutation import fold
from lexmill.tokenizers import Tokenizer

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]

_POWER = 0.75  # of the unigram distribution from which negatives are drawn; section 2.2 of the paper


def generator(seed: int, *purpose: int | str) -> np.random.Generator:
    """Return a generator that is a function of a seed and a purpose, as `fold`."""
    return np.random.Generator(np.random.Philox(key=fold(seed, *purpose)))


class KnownTokens:
    """The tokens of a split that have a vector: all but the unknown and the special ones.

    Attributes:
        tokens: their ids in order, (N,).
        document: the number of each one's document, (N,).
        counts: how often each id occurs, (V,).
    """

    def __init__(self, ids: NDArray[Any], lengths: NDArray[Any], tokenizer: Tokenizer) -> None:
        """`ids`: of all documents, joined; `lengths`: of each document."""
        special = (tokenizer.eos_id, tokenizer.pad_id, tokenizer.bos_id, tokenizer.mask_id, tokenizer.unk_id)
        has_vector = np.ones(tokenizer.vocab_size, dtype=bool)
        has_vector[[i for i in special if i is not None]] = False
        known = has_vector[ids]
        self.tokens: NDArray[Any] = ids[known]
        self.document = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)[known]
        self.counts: Ids = np.bincount(self.tokens, minlength=tokenizer.vocab_size)

    @property
    def has_pairs(self) -> bool:
        """Whether a document has two of them."""
        return bool((self.document[1:] == self.document[:-1]).any())


def keep_probabilities(counts: Ids, threshold: float) -> Floats:
    """Return the probability that an occurrence of each token is kept, min(1, sqrt(threshold / share)), (V,).

    Equation 5 of the paper.
    """
    share = counts / max(1, counts.sum())
    return np.sqrt(np.minimum(1.0, threshold / np.maximum(share, threshold)))


class Negatives:
    """Draws tokens in proportion to their counts to the power 3/4."""

    def __init__(self, counts: Ids) -> None:
        weights = counts.astype(np.float64) ** _POWER
        self._edges = np.cumsum(weights / weights.sum())
        self._edges[np.flatnonzero(counts)[-1] :] = 1.0  # however the sum was rounded

    def draw(self, random: np.random.Generator, shape: tuple[int, ...]) -> Ids:
        """Return int64 ids of this shape."""
        return np.searchsorted(self._edges, random.random(shape), side="right")


class EpochPairs:
    """All pairs of one epoch, numbered from 0: by centre, and from its first context to its last.

    Args:
        text: the tokens of the split.
        keep: the probability that each token is kept, (V,).
        window: the farthest context.
        random: draws what is kept and how far each centre reaches.
    """

    def __init__(self, text: KnownTokens, keep: Floats, window: int, random: np.random.Generator) -> None:
        kept = random.random(len(text.tokens)) < keep[text.tokens]
        self._tokens, document = text.tokens[kept], text.document[kept]
        place = np.arange(len(document))
        reach = random.integers(1, window + 1, len(document))
        first = np.searchsorted(document, document, side="left")
        last = np.searchsorted(document, document, side="right") - 1
        self._before = np.minimum(reach, place - first)  # contexts on the left
        self._ends = np.cumsum(self._before + np.minimum(reach, last - place))

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def at(self, numbers: Ids) -> tuple[Ids, Ids]:
        """Return centres and contexts of the pairs with these numbers, each (P,) int64."""
        centre = np.searchsorted(self._ends, numbers, side="right")
        begin = np.where(centre > 0, self._ends[centre - 1], 0)  # the number of the centre's first pair
        offset = numbers - begin - self._before[centre]  # the right side starts at 0
        context = centre + offset + (offset >= 0)
        return self._tokens[centre].astype(np.int64), self._tokens[context].astype(np.int64)
