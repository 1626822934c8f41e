"""Errors and correlations of a regressor, from its rows: {"id", "group", "text_sha256", "number", "predicted"}."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from lexmill.base.errors import UserError
from lexmill.base.storage import sha256_bytes
from lexmill.corpora.prepared import shown
from lexmill.evaluation.bootstrap import Resampling, Weights, resampling_units, with_intervals
from lexmill.evaluation.correlation import correlation
from lexmill.evaluation.rows import Row
from lexmill.evaluation.significance import PairedTest, ratio
from lexmill.kinds.regressor.scale import nearest

Floats = NDArray[np.float64]


def regressor_row(record: dict[str, Any], number: float, predicted: float) -> Row:
    """Return one row.

    Args:
        record: {"id", "group", "text"}.
        number, predicted: the right number and the model's.
    """
    digest = sha256_bytes(shown(record).encode("utf-8"))
    row = {"id": record["id"], "group": record["group"], "text_sha256": digest}
    return {**row, "number": number, "predicted": predicted}


def quadratic_kappa(right: NDArray[np.int64], found: NDArray[np.int64], levels: Floats, weights: Weights) -> float:
    """Return Cohen's kappa with squared distances between levels (Cohen 1968); NaN where chance makes no error.

    Args:
        right, found: the number of each item's level.
        levels: as numbers.
    """
    share = weights / weights.sum()
    error = share @ (levels[right] - levels[found]) ** 2
    of_right, of_found = (np.bincount(one, weights=share, minlength=len(levels)) for one in (right, found))
    chance = of_right @ (levels[:, None] - levels[None, :]) ** 2 @ of_found
    return float(1 - error / chance) if chance > 0 else float("nan")


def summarise(rows: Sequence[Row], unit: str, how: Resampling, levels: Sequence[float] = ()) -> dict[str, Any]:
    """Return errors and correlations with intervals, and the count of items.

    `mean_absolute_error`, `root_mean_squared_error`, `pearson`, `spearman` (of ranks over the whole set); with levels
    `level_accuracy` of the nearest level, and `quadratic_kappa`. A correlation that is undefined is left out.

    Raises:
        UserError: there are no rows.
    """
    if not rows:
        raise UserError("the test split is empty; give `splits.test` of the corpus a larger share")
    right = np.array([row["number"] for row in rows], dtype=np.float64)
    found = np.array([row["predicted"] for row in rows], dtype=np.float64)
    ranks = rankdata(right), rankdata(found)
    scale = np.array(levels, dtype=np.float64)
    places = (nearest(right, levels), nearest(found, levels)) if levels else None

    def score(weights: Weights) -> dict[str, float]:
        share = weights / weights.sum()
        values = {
            "mean_absolute_error": float(share @ np.abs(right - found)),
            "root_mean_squared_error": float(np.sqrt(share @ (right - found) ** 2)),
            "pearson": correlation(right, found, weights),
            "spearman": correlation(*ranks, weights),
        }
        if places is not None:
            values["level_accuracy"] = float(share @ (places[0] == places[1]))
            values["quadratic_kappa"] = quadratic_kappa(*places, scale, weights)
        return values

    whole = {name: value for name, value in score(np.ones(len(rows), dtype=np.int64)).items() if np.isfinite(value)}
    return with_intervals(whole, score, resampling_units(rows, unit, "item"), how) | {"items": len(rows)}


def worst(rows: Sequence[Row], count: int) -> list[int]:
    """Return the indices of the rows with the largest error, the worst first; ties in corpus order."""
    return sorted(range(len(rows)), key=lambda i: (-abs(rows[i]["number"] - rows[i]["predicted"]), i))[:count]


TEST = PairedTest(
    same=("group", "text_sha256", "number"),
    metrics={"mean_absolute_error": False},
    score=lambda _: (lambda sums: ratio(sums[0], sums[1]), lambda row: [abs(row["number"] - row["predicted"]), 1]),
    default=lambda *_: "mean_absolute_error",
)
