"""What a regressor must beat: the median of train, and ridge regression on TF-IDF."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from lexmill.base.errors import UserError
from lexmill.corpora.prepared import PreparedCorpus, texts_of
from lexmill.evaluation.bootstrap import Resampling
from lexmill.evaluation.rows import Row
from lexmill.evaluation.subject import Baseline
from lexmill.evaluation.terms import tfidf
from lexmill.kinds.regressor.metrics import regressor_row, summarise
from lexmill.kinds.regressor.scale import number_of
from lexmill.params import Baseline as Chosen

STRENGTHS = (0.1, 1.0, 10.0)  # penalties of the ridge; valid chooses one


def baselines(_: Chosen, corpus: PreparedCorpus, how: Resampling) -> Iterator[Baseline]:
    """Yield both; raise `UserError` where train is empty, has no words or a label that is no number."""
    train, valid, test = (list(corpus.records(split)) for split in ("train", "valid", "test"))
    if not train:
        raise UserError("the train split is empty; there is nothing to learn from", corpus.folder)
    numbers = [np.array([number_of(one["label"], corpus) for one in records]) for records in (train, valid, test)]

    def result(name: str, predicted: np.ndarray) -> Baseline:
        pairs = zip(test, numbers[2].tolist(), predicted.tolist(), strict=True)
        rows: list[Row] = [regressor_row(*one) for one in pairs]
        return Baseline(name, rows, summarise(rows, corpus.unit, how))

    yield result("median", np.full(len(test), np.median(numbers[0])))
    yield result("tfidf_ridge", _ridge(train, valid, test, numbers))


def _ridge(
    train: list[dict[str, Any]], valid: list[dict[str, Any]], test: list[dict[str, Any]], numbers: list[np.ndarray]
) -> np.ndarray:
    """Return the predictions of test by the penalty that has the least absolute error on valid (ties: the first)."""
    from sklearn.linear_model import Ridge

    texts = [" ".join(texts_of(record)) for record in train]
    terms = tfidf(texts, 1)
    features = terms.transform(texts)
    models = [Ridge(alpha=strength, solver="lsqr", random_state=0).fit(features, numbers[0]) for strength in STRENGTHS]

    def predicted(model: Ridge, records: list[dict[str, Any]]) -> np.ndarray:
        found: np.ndarray = model.predict(terms.transform([" ".join(texts_of(record)) for record in records]))
        return found

    def off(model: Ridge) -> float:
        return float(np.abs(predicted(model, valid) - numbers[1]).mean()) if valid else 0.0

    return predicted(min(models, key=off), test)
