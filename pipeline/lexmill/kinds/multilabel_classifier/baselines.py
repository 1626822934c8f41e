"""What a multi-label classifier must beat: the most frequent label, and logistic regression on TF-IDF."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lexmill.base.errors import UserError
from lexmill.corpora.prepared import PreparedCorpus, labels_of, texts_of
from lexmill.evaluation.bootstrap import Resampling
from lexmill.evaluation.subject import Baseline
from lexmill.evaluation.terms import tfidf
from lexmill.kinds.multilabel_classifier.label_sets import Floats, Given, as_matrix, best_thresholds
from lexmill.kinds.multilabel_classifier.metrics import multilabel_row, summarise
from lexmill.params import Baseline as Chosen


def baselines(_chosen: Chosen, corpus: PreparedCorpus, how: Resampling) -> Iterator[Baseline]:
    """Yield both; raise `UserError` where train has no label."""
    records = {split: list(corpus.records(split)) for split in ("train", "valid", "test")}
    sets = {split: [labels_of(one["label"]) for one in some] for split, some in records.items()}
    labels = sorted({label for some in sets["train"] for label in some})
    if not labels:
        raise UserError("no text of the train split has a label; there is nothing to learn from", corpus.folder)
    right = {split: as_matrix(some, labels) for split, some in sets.items()}  # (N, L)
    texts = {split: [" ".join(texts_of(one)) for one in some] for split, some in records.items()}

    def result(name: str, chances: Floats, thresholds: Floats) -> Baseline:
        rows = [
            multilabel_row(
                record,
                some,
                dict(zip(labels, row.tolist(), strict=True)),
                [label for label, enough in zip(labels, row >= thresholds, strict=True) if enough],
            )
            for record, some, row in zip(records["test"], sets["test"], chances, strict=True)
        ]
        return Baseline(name, rows, summarise(rows, corpus.unit, how))

    shares = right["train"].mean(axis=0)  # (L,)
    often = np.full(len(labels), 2.0)
    often[shares.argmax()] = 0.0
    yield result("most_frequent_label", np.tile(shares, (len(records["test"]), 1)), often)
    valid, test = _logistic(texts["train"], right["train"], texts["valid"], texts["test"])
    yield result("tfidf_logistic_regression", test, best_thresholds(valid, right["valid"]))


def _logistic(train: list[str], right: Given, valid: list[str], test: list[str]) -> tuple[Floats, Floats]:
    """Return the probabilities (N, L) of valid and test by a logistic regression for each label."""
    from sklearn.linear_model import LogisticRegression

    terms = tfidf(train, 1)
    features = terms.transform(train)
    sides = [terms.transform(texts) for texts in (valid, test)]
    found = [np.zeros((len(texts), right.shape[1])) for texts in (valid, test)]
    for i in range(right.shape[1]):
        if right[:, i].all():  # no boundary to learn
            for chances in found:
                chances[:, i] = 1.0
            continue
        model = LogisticRegression(C=4.0, max_iter=1000).fit(features, right[:, i])
        for chances, side in zip(found, sides, strict=True):
            chances[:, i] = model.predict_proba(side)[:, 1]
    return found[0], found[1]
