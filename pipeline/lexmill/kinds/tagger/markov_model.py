"""A hidden Markov model of tags and words, smoothed as by Witten and Bell (1991), read by Viterbi.

With c the counts of train, a tag's distribution over what follows it keeps back as much for what it has not yet been
seen with as it has been seen with different things, n:

    p(t' | t) = (c(t, t') + n(t) p(t')) / (c(t) + n(t))        p(t') = c(t') / all, the end of a sentence counted
    p(w | t)  = (c(t, w) + n(t) / V) / (c(t) + n(t))            V: the different words of train, and the unknown one

So an unknown word is more probable under tags of many different words, as nouns and names, than under closed ones.
Cost: O(W L^2) a sentence.

Letters: W words, L tags, V words of the vocabulary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Sentence = Sequence[str]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class MarkovModel:
    """The log probabilities.

    Attributes:
        tags: the names of the tags.
        begin, transitions, end: of the first tag (L,), from a tag to the next (L, L), of the end after a tag (L,).
        emissions: of words given tags, (V, L), of the unknown word last.
        row: returns a word's row of them.
        words: the known words by their rows, of a model that was learned here.
    """

    tags: Sequence[str]
    begin: Floats
    transitions: Floats
    end: Floats
    emissions: Floats
    row: Callable[[str], int]
    words: Sequence[str] = ()

    def tag(self, words: Sentence) -> list[str]:
        """Return the most probable tags; ties: the first."""
        if not words:
            return []
        return [self.tags[i] for i in viterbi(self.begin, self.transitions, self.end, self._rows(words))]

    def nats(self, words: Sentence, tags: Sequence[int]) -> float:
        """Return the negative log probability of the tags, by their numbers, given the words (forward algorithm)."""
        rows = self._rows(words)
        score = self.begin[tags[0]] + rows[np.arange(len(tags)), tags].sum() + self.end[tags[-1]]
        score += sum(self.transitions[pair] for pair in pairwise(tags))
        alpha = self.begin + rows[0]
        for row in rows[1:]:
            alpha = np.logaddexp.reduce(alpha[:, None] + self.transitions, axis=0) + row
        return float(np.logaddexp.reduce(alpha + self.end) - score)

    def _rows(self, words: Sentence) -> Floats:
        """Return the emissions of words, (W, L)."""
        return self.emissions[[self.row(word) for word in words]]


def learn(train: Sequence[tuple[Sentence, Sentence]]) -> MarkovModel:
    """Return the model of words and their tags."""
    tags, begin, transitions, end, emissions, known = distributions(train)

    def row(word: str) -> int:
        return known.get(word, len(known))

    return MarkovModel(tags, begin, transitions, end, emissions, row, list(known))


def distributions(
    train: Sequence[tuple[Sentence, Sentence]],
) -> tuple[list[str], Floats, Floats, Floats, Floats, dict[str, int]]:
    """Return the tags, and log probabilities: of the first tag (L,), from a tag to the next (L, L), of the end after a
    tag (L,), of words given tags (V, L), the unknown word last; and the row of each known word."""
    tags = sorted({tag for _, of_words in train for tag in of_words})
    known = {word: i for i, word in enumerate(sorted({word for words, _ in train for word in words}))}
    number, count = {tag: i for i, tag in enumerate(tags)}, len(tags)
    pairs = np.zeros((count + 1, count + 1))  # before: the start is last; after: the end is last
    with_words = np.zeros((len(known) + 1, count))
    for words, of_words in train:
        path = [count, *(number[tag] for tag in of_words), count]
        for pair, times in Counter(pairwise(path)).items():
            pairs[pair] += times
        for word, i in zip(words, path[1:], strict=False):
            with_words[known[word], i] += 1
    follows = pairs.sum(axis=0) / pairs.sum()
    kinds = (pairs > 0).sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):  # what never follows anything, as the end of a sentence without words
        next_tag = np.log((pairs + kinds * follows) / (pairs.sum(axis=1, keepdims=True) + kinds))
    different = (with_words > 0).sum(axis=0)
    of_word = np.log((with_words + different / len(with_words)) / (with_words.sum(axis=0) + different))
    return tags, next_tag[-1, :-1], next_tag[:-1, :-1], next_tag[:-1, -1], of_word, known


def viterbi(begin: Floats, transitions: Floats, end: Floats, emissions: Floats) -> list[int]:
    """Return the most probable sequence; ties: the first tag.

    Args:
        begin, transitions, end: log probabilities, (L,), (L, L), (L,).
        emissions: of the words, (W, L).
    """
    best, back = begin + emissions[0], []
    for row in emissions[1:]:
        found = best[:, None] + transitions
        back.append(found.argmax(axis=0))
        best = found.max(axis=0) + row
    path = [int((best + end).argmax())]
    for before in reversed(back):
        path.append(int(before[path[-1]]))
    return path[::-1]
