"""What a tagger must beat: the most frequent tag, a dictionary, a hidden Markov model, an averaged perceptron.

Cost: all four a minute for 200,000 words, most of it the perceptron's; memory O(words and features of train).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from lexmill.base.errors import UserError
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.evaluation.bootstrap import Resampling
from lexmill.evaluation.subject import Baseline
from lexmill.kinds.tagger import markov_model, perceptron
from lexmill.kinds.tagger.metrics import summarise, tagger_row
from lexmill.params import Baseline as Chosen

Sentence = Sequence[str]
Pairs = Sequence[tuple[Sentence, Sentence]]  # the words and tags of sentences
Tag = Callable[[Sentence], list[str]]


def baselines(_: Chosen, corpus: PreparedCorpus, how: Resampling) -> Iterator[Baseline]:
    """Yield all four.

    Raises:
        UserError: train is empty.
    """
    train, valid = ([(one["words"], one["tags"]) for one in corpus.records(split)] for split in ("train", "valid"))
    if not train:
        raise UserError("the train split is empty; there is nothing to learn from", corpus.folder)
    test: list[dict[str, Any]] = list(corpus.records("test"))
    for name, learn in (
        ("most_frequent_tag", lambda: most_frequent_tag(train)),
        ("dictionary", lambda: dictionary(train)),
        ("hidden_markov_model", lambda: markov_model.learn(train).tag),
        ("averaged_perceptron", lambda: perceptron.learn(train, valid, how.seed).tag),
    ):
        tag = learn()
        rows = [tagger_row(record, tag(record["words"]), marked=corpus.entities) for record in test]
        yield Baseline(name, rows, summarise(rows, corpus.unit, how))


def most_frequent_tag(train: Pairs) -> Tag:
    """Give every word the tag that train has most of; ties by name."""
    tag = _most(Counter(tag for _, tags in train for tag in tags))
    return lambda words: [tag] * len(words)


def dictionary(train: Pairs) -> Tag:
    """Give a word the tag that it has most often in train, an unknown one the most frequent of all; ties by name."""
    by_word: dict[str, Counter[str]] = {}
    for words, tags in train:
        for word, tag in zip(words, tags, strict=True):
            by_word.setdefault(word, Counter())[tag] += 1
    known = {word: _most(counts) for word, counts in by_word.items()}
    other = _most(Counter(tag for _, tags in train for tag in tags))
    return lambda words: [known.get(word, other) for word in words]


def _most(counts: Counter[str]) -> str:
    return min(counts, key=lambda tag: (-counts[tag], tag))
