"""What a sentence encoder must beat: the cosine of both texts' TF-IDF.

The encoder before its training is measured on valid by the training itself (`untrained_valid_accuracy_at_1`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from lexmill.corpora.prepared import PreparedCorpus
from lexmill.evaluation.bootstrap import Resampling
from lexmill.evaluation.subject import Baseline
from lexmill.evaluation.terms import tfidf
from lexmill.kinds.sentence_encoder.metrics import rows_of, summarise
from lexmill.kinds.sentence_encoder.retrieval import Floats, belongs, pairs_of
from lexmill.params import Baseline as Chosen


def baselines(chosen: Chosen, corpus: PreparedCorpus, how: Resampling) -> Iterator[Baseline]:
    """Yield it; raise `UserError` where train has no words."""
    train, test, positive = pairs_of(corpus, "train"), pairs_of(corpus, "test"), chosen.settings["positive"]
    terms = tfidf([record[side] for record in train for side in ("text", "second")], 1)
    first, second = (terms.transform([record[side] for record in test]) for side in ("text", "second"))
    together = np.flatnonzero([belongs(record, positive) for record in test])
    own = np.asarray(first.multiply(second).sum(axis=1)).reshape(-1)  # the rows have length 1

    def cosines(rows: Sequence[int], columns: Sequence[int]) -> Floats:
        return np.asarray((first[together[list(rows)]] @ second[together[list(columns)]].T).todense())

    rows = rows_of(test, positive, own, cosines)
    yield Baseline("tfidf_cosine", rows, summarise(rows, corpus.unit, how))
