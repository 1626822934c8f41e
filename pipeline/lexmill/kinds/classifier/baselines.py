"""What a classifier must beat: the majority class, and TF-IDF with logistic regression (scikit-learn).

Cost: seconds for 10,000 sentences; memory O(words and word pairs of train).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from lexmill.base.errors import UserError
from lexmill.corpora.prepared import PreparedCorpus, texts_of
from lexmill.evaluation.bootstrap import Resampling
from lexmill.evaluation.rows import Row
from lexmill.evaluation.subject import Baseline
from lexmill.evaluation.terms import tfidf
from lexmill.kinds.classifier.metrics import classifier_row, row_loss, summarise
from lexmill.params import Baseline as Chosen

STRENGTHS = (1.0, 4.0, 16.0)  # inverse penalties of the logistic regression

Records = Sequence[dict[str, Any]]  # {"id", "group", "text", "label"}


def baselines(_: Chosen, corpus: PreparedCorpus, how: Resampling) -> Iterator[Baseline]:
    """Yield both."""
    train, valid, test = (list(corpus.records(split)) for split in ("train", "valid", "test"))
    rows = majority(train, test)
    yield Baseline("majority", rows, summarise(rows, corpus.unit, how))
    rows = tfidf_logistic_regression(train, valid, test)
    yield Baseline("tfidf_logistic_regression", rows, summarise(rows, corpus.unit, how))
    if "second" in train[0]:
        rows = tfidf_similarity(train, test)
        yield Baseline("tfidf_similarity", rows, summarise(rows, corpus.unit, how))


def majority(train: Records, test: Records) -> list[Row]:
    """Return rows of a classifier that gives each label its share of train, whatever the text; ties by name.

    Raises:
        UserError: train is empty.
    """
    counts = Counter(record["label"] for record in train)
    if not counts:
        raise UserError("the train split is empty; there is nothing to learn from")
    labels = sorted(counts)
    shares = np.array([counts[label] for label in labels]) / len(train)
    return [classifier_row(record, labels, shares) for record in test]


def tfidf_logistic_regression(train: Records, valid: Records, test: Records) -> list[Row]:
    """Return rows of logistic regression on TF-IDF of words and word pairs, fitted on train.

    An untuned baseline would be too easy to beat: its penalty is the one of `STRENGTHS` with the lowest validation
    loss (ties: the first).

    Raises:
        UserError: train has no word, or one label only.
    """
    from sklearn.linear_model import LogisticRegression

    labels = sorted({record["label"] for record in train})
    if len(labels) < 2:
        raise UserError(f"the train split has {len(labels)} label(s); a classifier needs two or more")
    texts = [" ".join(texts_of(record)) for record in train]
    vectorizer = _fitted_vectorizer(texts)

    def rows_of(model: Any, records: Records) -> list[Row]:
        if not records:
            return []
        found = model.predict_proba(vectorizer.transform([" ".join(texts_of(record)) for record in records]))
        return [classifier_row(record, list(model.classes_), row) for record, row in zip(records, found, strict=True)]

    features, truth = vectorizer.transform(texts), [record["label"] for record in train]
    models = [LogisticRegression(C=strength, max_iter=1000).fit(features, truth) for strength in STRENGTHS]
    best = min(models, key=lambda model: sum(row_loss(row) for row in rows_of(model, valid)))
    return rows_of(best, test)


def tfidf_similarity(train: Records, test: Records) -> list[Row]:
    """Return rows of logistic regression on one number, the cosine of both texts' TF-IDF, fitted on train."""
    from sklearn.linear_model import LogisticRegression

    vectorizer = _fitted_vectorizer([text for record in train for text in texts_of(record)])

    def cosines(records: Records) -> Any:
        first, second = (vectorizer.transform([texts_of(record)[side] for record in records]) for side in (0, 1))
        return np.asarray(first.multiply(second).sum(axis=1)).reshape(-1, 1)  # the rows have length 1

    model = LogisticRegression(C=100.0, max_iter=1000).fit(cosines(train), [record["label"] for record in train])
    found = model.predict_proba(cosines(test)) if test else []
    return [classifier_row(record, list(model.classes_), row) for record, row in zip(test, found, strict=True)]


def _fitted_vectorizer(texts: Sequence[str]) -> Any:
    """Return TF-IDF of terms in two texts or more; of all terms in a corpus so small that none is."""
    try:
        return tfidf(texts, 2)
    except UserError:
        return tfidf(texts, 1)
