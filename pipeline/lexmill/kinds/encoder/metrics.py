"""The paired test of two encoders; the figures themselves are those of `lexmill.evaluation.masked_tokens`.

The deciding metric is nats a masked token, for encoders with different tokenizers masked bits per byte.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import NDArray

from lexmill.base.errors import UserError
from lexmill.evaluation.rows import Row
from lexmill.evaluation.significance import PairedTest, ratio


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
