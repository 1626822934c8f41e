"""Metrics of an encoder at masked tokens, from its rows.

A row is a block of about 8,000 characters of a document, the same for every tokenizer: {"id", "group", "nats",
"targets", "right", "bytes", "unknown", "text_sha256"}. Each token but unknown ones is masked once, a seventh of them at
a time: so every token counts, at about the cost of seven passes, under the same conditions as in training. The
deciding metric is the mean, nats a masked token. Masked bits per byte is the same sum over the bytes of the text, for
encoders with different tokenizers; it is left out where there are unknown tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lexmill.base.errors import UserError
from lexmill.evaluation.bootstrap import Resampling, Weights, resampling_units, with_intervals
from lexmill.evaluation.rows import Row
from lexmill.evaluation.significance import PairedTest, ratio

_SUMS = ("nats", "targets", "right", "bytes")


def summarise(rows: Sequence[Row], unit: str, how: Resampling) -> dict[str, Any]:
    """Return masked_nats, masked_accuracy and, without unknown tokens, masked_bits_per_byte, with intervals; counts.

    Raises:
        UserError: there is nothing to score.
    """
    sums = np.array([[row[key] for key in _SUMS] for row in rows], dtype=np.float64).reshape(-1, len(_SUMS))
    if not sums[:, 1].sum():
        raise UserError("the test split holds no token to mask; give `splits.test` of the corpus a larger share")
    unknown = sum(row["unknown"] for row in rows)

    def score(weights: Weights) -> dict[str, float]:
        nats, targets, right, size = weights @ sums
        found = {"masked_nats": ratio(nats, targets), "masked_accuracy": ratio(right, targets)}
        return found if unknown else {**found, "masked_bits_per_byte": ratio(nats / math.log(2), size)}

    units = resampling_units(rows, unit, "block")
    found = with_intervals(score(np.ones(len(rows), dtype=np.int64)), score, units, how)
    return found | {"masked_tokens": int(sums[:, 1].sum()), "unknown_tokens": int(unknown)}


def _default(challenger: Sequence[Row], champion: Sequence[Row]) -> str:
    """Return masked_nats where both masked the same number of tokens in each block, else masked_bits_per_byte."""
    alike = all(first["targets"] == second["targets"] for first, second in zip(challenger, champion, strict=True))
    if alike:
        return "masked_nats"
    if any(row["unknown"] for rows in (challenger, champion) for row in rows):
        raise UserError(
            "the two encoders have different tokenizers and one of them makes unknown tokens, so their losses cannot be"
            " compared; use a tokenizer without unknown tokens, such as bpe or byte"
        )
    return "masked_bits_per_byte"


def _score(metric: str) -> tuple[Callable[[NDArray[Any]], float], Callable[[Row], list[float]]]:
    if metric == "masked_bits_per_byte":
        return lambda sums: ratio(sums[0] / math.log(2), sums[1]), lambda row: [row["nats"], row["bytes"]]
    part = "nats" if metric == "masked_nats" else "right"
    return lambda sums: ratio(sums[0], sums[1]), lambda row: [row[part], row["targets"]]


TEST = PairedTest(
    same=("group", "bytes", "text_sha256"),
    metrics={"masked_nats": False, "masked_accuracy": True, "masked_bits_per_byte": False},
    score=_score,
    default=_default,
)
