"""Retrieval and correlation of a sentence encoder, from its rows.

A row is a pair: {"id", "group", "text_sha256", "label", "cosine", "rank"}; `rank` is None for one that does not belong
together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import rankdata

from lexmill.base.errors import UserError
from lexmill.base.storage import sha256_bytes
from lexmill.corpora.prepared import shown
from lexmill.evaluation.bootstrap import Resampling, Weights, resampling_units, with_intervals
from lexmill.evaluation.correlation import correlation
from lexmill.evaluation.rows import Row
from lexmill.evaluation.significance import PairedTest, ratio
from lexmill.kinds.sentence_encoder.retrieval import Cosines, Floats, belongs, number_of, partner_ranks


def rows_of(records: Sequence[Mapping[str, Any]], positive: str, own: Floats, cosines: Cosines) -> list[Row]:
    """Return one row per record.

    Args:
        records: pairs.
        positive: which belong together, see `Data`.
        own: the cosine of each pair, (N,).
        cosines: of any texts of the pairs that belong together, which are counted from 0.
    """
    together = [i for i, record in enumerate(records) if belongs(record, positive)]
    ranks = dict(zip(together, partner_ranks([records[i] for i in together], cosines), strict=True))
    return [
        {
            "id": record["id"],
            "group": record["group"],
            "text_sha256": sha256_bytes(shown(dict(record)).encode("utf-8")),
            "label": record["label"],
            "cosine": float(own[i]),
            "rank": ranks.get(i),
        }
        for i, record in enumerate(records)
    ]


def summarise(rows: Sequence[Row], unit: str, how: Resampling) -> dict[str, Any]:
    """Return accuracy_at_1, mean_reciprocal_rank and, where labels are numbers, spearman, with intervals; the counts.

    The first two are over the pairs that belong together; Spearman's rho is that of cosine and label over all pairs.

    Raises:
        UserError: no pair belongs together.
    """
    ranks = np.array([row["rank"] or np.inf for row in rows], dtype=np.float64)
    together = np.isfinite(ranks)
    if not together.any():
        raise UserError("no pair of the test split belongs together; see data.positive and the corpus's splits")
    numbers = [number_of(row["label"]) for row in rows]
    varied = None not in numbers and len(set(numbers)) > 1
    sides = (rankdata([row["cosine"] for row in rows]), rankdata(numbers)) if varied else None

    def score(weights: Weights) -> dict[str, float]:
        of_pairs = weights * together
        if not of_pairs.any():
            return {}
        found = {
            "accuracy_at_1": float(of_pairs @ (ranks == 1) / of_pairs.sum()),
            "mean_reciprocal_rank": float(of_pairs @ (1 / ranks) / of_pairs.sum()),
        }
        return found | ({"spearman": correlation(*sides, weights)} if sides else {})

    whole = {name: value for name, value in score(np.ones(len(rows), dtype=np.int64)).items() if np.isfinite(value)}
    found = with_intervals(whole, score, resampling_units(rows, unit, "item"), how)
    return found | {"items": len(rows), "pairs": int(together.sum())}


def worst(rows: Sequence[Row], count: int) -> list[int]:
    """Return the indices of the pairs whose partner has the highest rank numbers; ties in corpus order."""
    together = [i for i, row in enumerate(rows) if row["rank"]]
    return sorted(together, key=lambda i: (-rows[i]["rank"], i))[:count]


TEST = PairedTest(
    same=("group", "text_sha256", "label"),
    metrics={"accuracy_at_1": True},
    score=lambda _: (lambda sums: ratio(sums[0], sums[1]), lambda row: [row["rank"] == 1, row["rank"] is not None]),
    default=lambda *_: "accuracy_at_1",
)
