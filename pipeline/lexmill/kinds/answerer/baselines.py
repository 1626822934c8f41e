"""What an answerer must beat: the whole context, its first sentence, the one most like the question, no answer at all.

Cost: seconds; memory O(words of train).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from lexmill.corpora.prepared import PreparedCorpus
from lexmill.evaluation.bootstrap import Resampling
from lexmill.evaluation.subject import Baseline
from lexmill.kinds.answerer.metrics import row, summarise
from lexmill.params import Baseline as Chosen

# White space after the end of a sentence; the wide marks have none after them.
_BETWEEN = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])\s*|\n+")

Answering = Callable[[Mapping[str, Any]], str]


def baselines(_: Chosen, corpus: PreparedCorpus, how: Resampling) -> Iterator[Baseline]:
    """Yield them all; no answer only where the test split has a question without one."""
    test = list(corpus.records("test"))
    contexts = list(dict.fromkeys(record["context"] for record in corpus.records("train")))
    every: dict[str, Answering] = {
        "whole_context": lambda record: str(record["context"]),
        "first_sentence": lambda record: sentences(record["context"])[0],
        "similar_sentence": similar_sentence(contexts),
    }
    if not all(record["answers"] for record in test):
        every["no_answer"] = lambda _: ""
    for name, answering in every.items():
        rows = [row(record, answering(record)) for record in test]
        yield Baseline(name, rows, summarise(rows, corpus.unit, how))


def sentences(text: str) -> list[str]:
    """Return the sentences of a text, at least one: it is cut after a full stop, `?` or `!`, and at line breaks."""
    return [part for part in _BETWEEN.split(text) if part.strip()] or [text]


def similar_sentence(contexts: Sequence[str]) -> Answering:
    """Return a function that gives the sentence of a context most like the question, by the cosine of TF-IDF.

    Of equal ones the first. Weights are those of the sentences of these contexts; if they have no words, of the one at
    hand.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    def fitted(texts: Sequence[str]) -> Any:
        try:
            return TfidfVectorizer(token_pattern=r"(?u)\b\w+\b").fit(texts)
        except ValueError:  # no words
            return None

    known = fitted([sentence for context in contexts for sentence in sentences(context)])

    def answer(record: Mapping[str, Any]) -> str:
        found = sentences(record["context"])
        vectorizer = known or fitted(found)
        if vectorizer is None:
            return found[0]
        cosines = (vectorizer.transform(found) @ vectorizer.transform([record["question"]]).T).toarray()[:, 0]
        return found[int(cosines.argmax())]

    return answer
