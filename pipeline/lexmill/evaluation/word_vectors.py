"""Vectors of words from a model's input embeddings: nearest words, sums and differences of words, a plane.

A word's vector is the mean of its tokens' embeddings. From all of them the mean over the words is removed: trained
embeddings share a large common vector, so without this all cosines are near 1 and frequent words are near everything
(the first step of "all-but-the-top", Mu and Viswanath 2018).

Shape letters: V vocabulary, N words, D model width.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lexmill.base.errors import UserError
from lexmill.base.shown import value_text
from lexmill.evaluation.words import word_tokens
from lexmill.tokenizers import Tokenizer

Floats = NDArray[np.float32]
Signed = tuple[int, str]  # +1 or -1, and a word
_NOTHING = 1e-6  # length of a sum of unit vectors that cancel


class WordVectors:
    """Unit vectors of words around their mean.

    Attributes:
        words: N words, in the given order, each normal form once; those with an unknown token are left out.
        vectors: (N, D), unit length; the zero vector stays.
    """

    def __init__(self, words: Sequence[str], tokenizer: Tokenizer, embeddings: Floats) -> None:
        """`embeddings`: (V, D), float32."""
        self._tokenizer, self._embeddings = tokenizer, embeddings
        # "King" and "king" are one word to a tokenizer that lowercases.
        distinct = list(dict.fromkeys(map(tokenizer.normalize, words)))
        self.words, raw = self._means(distinct)
        self._mean = (raw.sum(axis=0, dtype=np.float64) / max(len(raw), 1)).astype(np.float32)
        self.vectors = _unit(raw - self._mean)

    def _means(self, words: Sequence[str]) -> tuple[list[str], Floats]:
        """Return the known words and the mean embedding of each one's tokens, (N, D)."""
        unknown = self._tokenizer.unk_id
        tokens = word_tokens(words, self._tokenizer)
        known = [i for i, ids in enumerate(tokens) if ids and unknown not in ids]
        means = np.zeros((len(known), self._embeddings.shape[1]), np.float32)
        for row, i in enumerate(known):
            means[row] = self._embeddings[tokens[i]].mean(axis=0)
        return [words[i] for i in known], means

    def knows(self, word: str) -> bool:
        """Return whether a word has a vector."""
        return bool(self._means([self._tokenizer.normalize(word)])[0])

    def vector(self, word: str) -> Floats:
        """Return the unit vector of any word, (D,).

        Raises:
            UserError: it is empty, or has an unknown token.
        """
        known, raw = self._means([self._tokenizer.normalize(word)])
        if not known:
            raise UserError(f"the model's tokenizer does not know the word {value_text(word)}")
        return _unit(raw - self._mean)[0]

    def neighbours(self, query: Sequence[Signed], count: int) -> list[tuple[str, float]]:
        """Return the words nearest to a sum of words with their cosines, nearest first, without those of the query.

        This is 3CosAdd for b - a + a* (Mikolov et al. 2013, "Linguistic Regularities", which take unit vectors).

        Raises:
            UserError: a word is unknown, the words cancel, or fewer than two words are there.
        """
        if len(self.words) < 2:
            raise UserError("the tokenizer knows fewer than two words, so none has a neighbour")
        whole = np.sum([sign * self.vector(word) for sign, word in query], axis=0)
        length = float(np.linalg.norm(whole))
        if length < _NOTHING:
            raise UserError("the words of the query cancel each other, so no direction is left")
        cosines = self.vectors @ (whole / length)
        asked = {self._tokenizer.normalize(word) for _, word in query}
        nearest = (int(i) for i in np.argsort(-cosines, kind="stable"))
        found = [(self.words[i], float(cosines[i])) for i in nearest if self.words[i] not in asked]
        return found[:count]


def _unit(vectors: Floats) -> Floats:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def plane(vectors: Floats) -> Floats:
    """Return (N, D) projected on the two directions of largest variance, (N, 2): PCA, by SVD of the centred vectors.

    A direction's sign is free; here its largest coordinate is positive.
    """
    centred = vectors - vectors.mean(axis=0)
    left, scales, _ = np.linalg.svd(centred, full_matrices=False)
    places = left[:, :2] * scales[:2]
    largest = np.take_along_axis(places, np.abs(places).argmax(axis=0)[None], axis=0)
    return (places * np.where(largest < 0, -1, 1)).astype(np.float32)
