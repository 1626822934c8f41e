"""An averaged perceptron that tags from left to right (Collins 2002; Freund and Schapire 1999).

Each word is tagged by the linear score of its features under each tag, with the two tags before it as predicted. In
training a wrong tag moves the weights of the word's features by 1 towards the right tag and away from the other. The
weights in use are their mean over all words read so far, which generalises better than the last ones. Of `EPOCHS`
passes over train the one with the most right tags on valid is kept (ties: the first).

Features: the word; its first character and last one to four; its shape (capitals, digits, other signs); the two words
before and after it; the endings of its neighbours; the tag before, the two tags before, and the tag before with the
word. All is lowercased but the shape.

Cost: some 20 weights for each tag and word; two minutes for 200,000 words and 17 tags.

Letters: F features, L tags.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lexmill.data.permutation import fold, permute

EPOCHS = 5
_START, _END = ("<s2>", "<s1>"), ("</s1>", "</s2>")

Sentence = Sequence[str]
Pairs = Sequence[tuple[Sentence, Sentence]]
_SHAPES = ((re.compile("[A-Z]+"), "X"), (re.compile("[a-z]+"), "x"), (re.compile("[0-9]+"), "9"))


def shape(word: str) -> str:
    """Return the kinds of characters of a word in order, each once a run: `Apollo-13` -> `Xx-9`."""
    for pattern, mark in _SHAPES:
        word = pattern.sub(mark, word)
    return word[:8]


def of_words(words: Sentence) -> list[list[str]]:
    """Return the features of each word that do not depend on tags."""
    low = [*_START, *(word.lower() for word in words), *_END]
    found = []
    for i, word in enumerate(words):
        two, one, this, after, then = low[i : i + 5]
        found.append(
            [
                "b",
                f"w{this}",
                f"p{this[:1]}",
                *(f"s{this[-size:]}" for size in range(1, 5)),
                f"h{shape(word)}",
                f"i{one}",
                f"j{two}",
                f"k{after}",
                f"l{then}",
                f"m{one[-3:]}",
                f"n{after[-3:]}",
            ]
        )
    return found


def of_tags(before: Sequence[str], word: str) -> list[str]:
    """Return the features of a word by the two tags before it."""
    return [f"t{before[-1]}", f"u{before[-2]} {before[-1]}", f"v{before[-1]} {word.lower()}"]


class _Weights:
    """Weights by feature and tag, and what their mean needs."""

    def __init__(self, tags: Sequence[str]) -> None:
        self.tags, self.number = tags, {tag: i for i, tag in enumerate(tags)}
        self.rows: dict[str, int] = {}
        self._now = np.zeros((1024, len(tags)))
        self._moved = np.zeros_like(self._now)  # the sum of all moves, each times the words read before it
        self._read = 1

    def _numbers(self, features: Sequence[str]) -> list[int]:
        found = [self.rows.setdefault(feature, len(self.rows)) for feature in features]
        while len(self.rows) > len(self._now):
            self._now, self._moved = (np.concatenate([one, np.zeros_like(one)]) for one in (self._now, self._moved))
        return found

    def learn(self, features: Sequence[str], right: str) -> str:
        """Predict a tag, and move the weights if it is wrong; return it."""
        numbers = self._numbers(features)
        found, wanted = int(self._now[numbers].sum(axis=0).argmax()), self.number[right]
        if found != wanted:
            for tag, move in ((wanted, 1.0), (found, -1.0)):
                # Two features of a word may be one: each moves its weight.
                np.add.at(self._now[:, tag], numbers, move)
                np.add.at(self._moved[:, tag], numbers, move * self._read)
        self._read += 1
        return self.tags[found]

    def perceptron(self) -> Perceptron:
        """Return the mean of the weights over the words read."""
        rows, mean = dict(self.rows), (self._now - self._moved / self._read)[: len(self.rows)]
        unknown = np.zeros((1, len(self.tags)))

        def row(feature: str) -> int:
            return rows.get(feature, len(rows))

        return Perceptron(self.tags, np.concatenate([mean, unknown]), row, list(rows))


@dataclass(frozen=True)
class Perceptron:
    """The mean weights.

    Attributes:
        tags: the names of the tags.
        weights: of features, (F + 1, L), of an unknown one last: 0.
        row: returns a feature's row of them.
        features: by their rows, of a model that was learned here.
    """

    tags: Sequence[str]
    weights: NDArray[np.float64]
    row: Callable[[str], int]
    features: Sequence[str] = ()

    def tag(self, words: Sentence) -> list[str]:
        """Return a tag for each word; ties: the first."""
        return [self.tags[int(scores.argmax())] for scores in self._scores(words)]

    def nats(self, words: Sentence, tags: Sequence[int]) -> float:
        """Return the nats of tags, by their numbers, as if the scores were logits; each after its own answers."""
        pairs = zip(self._scores(words), tags, strict=True)
        return float(sum(np.logaddexp.reduce(scores) - scores[tag] for scores, tag in pairs))

    def _scores(self, words: Sentence) -> Iterator[NDArray[np.float64]]:
        """Yield the scores (L,) of each word's tags after the tags that it gave."""
        found = list(_START)
        for own, word in zip(of_words(words), words, strict=True):
            scores = self.weights[[self.row(one) for one in [*own, *of_tags(found, word)]]].sum(axis=0)
            found.append(self.tags[int(scores.argmax())])
            yield scores


def learn(
    train: Pairs,
    valid: Pairs,
    seed: int,
    epochs: int = EPOCHS,
    note: Callable[[int, float], None] = lambda epoch, right: None,
) -> Perceptron:
    """Return the model.

    Args:
        train, valid: words and tags; valid chooses the epoch.
        seed: of the order of train in each epoch.
        note: called after each epoch with its number, from 1, and the accuracy on valid.
    """
    weights = _Weights(sorted({tag for _, tags in train for tag in tags}))
    features = [of_words(words) for words, _ in train]
    count = max(sum(len(words) for words, _ in valid), 1)
    best: tuple[int, Perceptron] | None = None
    for epoch in range(epochs):
        order = permute(np.arange(len(train)), len(train), fold(seed, "perceptron", epoch))
        for i in order.tolist():
            before = list(_START)
            for own, word, right in zip(features[i], *train[i], strict=True):
                before.append(weights.learn([*own, *of_tags(before, word)], right))
        found = weights.perceptron()
        right_tags = sum(a == b for words, tags in valid for a, b in zip(found.tag(words), tags, strict=True))
        note(epoch + 1, right_tags / count)
        if best is None or right_tags > best[0]:
            best = right_tags, found
    assert best is not None
    return best[1]
