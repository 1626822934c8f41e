"""Labels that are probably wrong, by confident learning (Northcutt et al. 2021).

A label's threshold is the mean probability it has among the texts that bear it. A text is confidently of a label whose
probability reaches that label's threshold (of several the most probable one). Where that is not the given label, the
given one is probably wrong. The probabilities must come from a model that has not learned from these texts.

Letters: N texts, L labels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lexmill.base import layout
from lexmill.base.errors import UserError
from lexmill.corpora.prepared import PreparedCorpus, shown, texts_of
from lexmill.evaluation.terms import tfidf
from lexmill.kinds.verbs import one_field

FOLDS = 5
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Doubt:
    """A text whose label is probably wrong.

    Attributes:
        index: of the text.
        likely: the number of the label that it probably should have.
        margin: the probability of that label over the given one's.
    """

    index: int
    likely: int
    margin: float


def doubtful(given: NDArray[np.int64], probabilities: Floats) -> list[Doubt]:
    """Return the texts whose label is probably wrong, the largest margin first.

    Args:
        given: the number of each text's label, (N,).
        probabilities: (N, L).
    """
    n_labels = probabilities.shape[1]
    thresholds = np.full(n_labels, np.inf)  # a label that no text bears is nobody's
    for label in np.unique(given):
        thresholds[label] = probabilities[given == label, label].mean()
    confident = np.where(probabilities >= thresholds, probabilities, -1.0)  # (N, L)
    likely = confident.argmax(axis=1)
    rows = np.arange(len(given))
    wrong = np.flatnonzero((confident[rows, likely] >= 0) & (likely != given))
    margins = probabilities[wrong, likely[wrong]] - probabilities[wrong, given[wrong]]
    order = np.argsort(-margins, kind="stable")
    return [
        Doubt(int(i), int(likely[i]), float(margin)) for i, margin in zip(wrong[order], margins[order], strict=True)
    ]


def out_of_sample(texts: Sequence[str], given: NDArray[np.int64]) -> Floats:
    """Return probabilities (N, L) of each text by logistic regression on TF-IDF, fitted on the other folds.

    Args:
        given: the number of each text's label, (N,); each label has as many texts as there are folds, or more.

    Raises:
        UserError: no text has a word.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold

    found = np.zeros((len(texts), int(given.max()) + 1))
    everything = np.array(texts, dtype=object)
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    for train, rest in folds.split(everything, given):
        terms = tfidf(everything[train], 1)
        model = LogisticRegression(C=4.0, max_iter=1000).fit(terms.transform(everything[train]), given[train])
        found[np.ix_(rest, model.classes_)] = model.predict_proba(terms.transform(everything[rest]))
    return found


def lines(corpus: str, split: str, count: int) -> list[tuple[str, ...]]:
    """Return up to `count` doubtful records of a prepared corpus: id, label, likely label, margin, text.

    Raises:
        UserError: it has no labels, fewer than two labels of enough texts, or no words.
    """
    prepared = PreparedCorpus(layout.corpus(corpus))
    if prepared.kind != "labelled":
        raise UserError("its records have no labels", prepared.folder)
    records = list(prepared.records(split))
    counts = Counter(record["label"] for record in records)
    known = sorted(label for label, texts in counts.items() if texts >= FOLDS)
    if len(known) < 2:
        raise UserError(f"{split} has fewer than two labels of {FOLDS} texts or more", prepared.folder)
    number = {label: i for i, label in enumerate(known)}
    judged = [record for record in records if record["label"] in number]
    given = np.array([number[record["label"]] for record in judged], dtype=np.int64)
    found = doubtful(given, out_of_sample([" ".join(texts_of(record)) for record in judged], given))
    return [
        (
            one_field(judged[one.index]["id"]),
            one_field(judged[one.index]["label"]),
            one_field(known[one.likely]),
            f"{one.margin:.4f}",
            one_field(shown(judged[one.index])),
        )
        for one in found[:count]
    ]
