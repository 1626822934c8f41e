"""Floors of a classifier: the majority class, and TF-IDF with logistic regression (scikit-learn)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from lexmill.errors import UserError
from lexmill.evaluation.classification import classifier_row
from lexmill.evaluation.rows import Row

Records = Sequence[dict[str, Any]]  # {"id", "group", "text", "label"}


def majority(train: Records, test: Records) -> list[Row]:
    """Rows of a classifier that gives each label its share of train whatever the text; of equals the first by name.

    Raises:
        UserError: train is empty.
    """
    counts = Counter(record["label"] for record in train)
    if not counts:
        raise UserError("the train split is empty; there is nothing to learn from")
    labels = sorted(counts)
    shares = np.array([counts[label] for label in labels]) / len(train)
    return [classifier_row(record, labels, shares) for record in test]


def tfidf_logistic_regression(train: Records, test: Records) -> list[Row]:
    """Rows of logistic regression on TF-IDF of words and word pairs, fitted on train.

    Raises:
        UserError: train has no word, or one label only.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    labels = sorted({record["label"] for record in train})
    if len(labels) < 2:
        raise UserError(f"the train split has {len(labels)} label(s); a classifier needs two or more")
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"(?u)\b\w+\b")
    try:
        features = vectorizer.fit_transform(record["text"] for record in train)
    except ValueError as error:
        raise UserError(f"the texts of the train split have no words ({error})") from None
    model = LogisticRegression(max_iter=1000).fit(features, [record["label"] for record in train])
    if not test:
        return []
    probabilities = model.predict_proba(vectorizer.transform(record["text"] for record in test))
    return [classifier_row(record, list(model.classes_), row) for record, row in zip(test, probabilities, strict=True)]
