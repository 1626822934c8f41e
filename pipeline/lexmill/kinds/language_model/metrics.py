"""Perplexity and bits per byte of a `Scorer` on running text.

A loss is (sum of nats, count of targets), summed over everything and divided once; the end token of each document
is a target. Bits per byte is sum of nats / ln 2 / bytes of the normalised text (what the tokenizer sees), comparable
between tokenizers. With unknown tokens it would be wrong (an unknown word costs nothing to spell), so it is left out
and `refused` says why.

A row is a block of about `BLOCK` characters of a document, cut at white space and so the same for every tokenizer:
whole works are too few to resample. A token belongs to the block in which it starts; the model reads whole documents.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from lexmill.base.errors import UserError
from lexmill.base.storage import sha256_bytes
from lexmill.evaluation.blocks import BLOCK, cuts
from lexmill.evaluation.bootstrap import Resampling, Weights, resampling_units, with_intervals
from lexmill.evaluation.rows import Row
from lexmill.evaluation.scoring import Floats, Scorer, window_positions
from lexmill.evaluation.significance import PairedTest, by_key, by_thirds, ratio

if TYPE_CHECKING:
    from lexmill.tokenizers import Tokenizer

Item = TypeVar("Item")

_MOST_GROUPS = 12  # with more, each says little
_LARGEST_EXPONENT = 700.0  # exp of more is not a float64


class TextEncoder(Protocol):
    """What scoring needs of a tokenizer."""

    unk_id: int | None

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[int]]:
        """Return token ids, and for each the character of `text` at which it starts."""

    def normalize(self, text: str) -> str:
        """Return the text as the tokenizer sees it."""


class OffsetEncoder:
    """A trained tokenizer as a `TextEncoder`."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.unk_id = tokenizer.unk_id

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[int]]:
        encoding = self.tokenizer.backend.encode(text, add_special_tokens=False)
        return encoding.ids, [start for start, _ in encoding.offsets]

    def normalize(self, text: str) -> str:
        return self.tokenizer.normalize(text)


@dataclass
class DocumentScores:
    """A document's log-probabilities, (targets,), and its rows."""

    log_probabilities: Floats
    rows: list[Row]


def score_documents(
    records: Iterable[dict[str, Any]], tokenizer: TextEncoder, scorer: Scorer, batch: int = 64
) -> Iterator[DocumentScores]:
    """Score text records `{"id", "group", "text"}` in order, `batch` documents in memory at a time."""
    for some in batched(records, batch):
        encoded = [tokenizer.encode_with_offsets(record["text"]) for record in some]
        scores = scorer.log_probabilities([ids for ids, _ in encoded])
        for record, (ids, starts), values in zip(some, encoded, scores, strict=True):
            yield DocumentScores(values, _rows(record, ids, starts, values, tokenizer))


def batched(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield lists of `size` items; the last may be shorter."""
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch


def _rows(
    record: dict[str, Any], ids: list[int], starts: list[int], log_probabilities: Floats, tokenizer: TextEncoder
) -> list[Row]:
    text = record["text"]
    ends = cuts(text)
    block_of_token = np.searchsorted(ends, starts, side="right")
    # The end token, and a token that starts at the very end, belong to the last block.
    block_of_target = np.minimum(np.append(block_of_token, len(ends) - 1), len(ends) - 1).astype(np.int64)
    nats = np.bincount(block_of_target, weights=-log_probabilities, minlength=len(ends))
    targets = np.bincount(block_of_target, minlength=len(ends))
    is_unknown = np.array([token == tokenizer.unk_id for token in ids] + [False])
    unknown = np.bincount(block_of_target, weights=is_unknown, minlength=len(ends))
    rows = []
    for block, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        normalised = tokenizer.normalize(text[start:end])
        data = normalised.encode("utf-8")
        rows.append(
            {
                "id": f"{record['id']}/{block}",
                "group": record["group"],
                "nats": float(nats[block]),
                "targets": int(targets[block]),
                "bytes": len(data),
                "words": len(normalised.split()),
                "unknown": int(unknown[block]),
                "text_sha256": sha256_bytes(data),
            }
        )
    return rows


def language_model_metrics(sums: dict[str, float], with_bytes: bool) -> dict[str, float]:
    """Return the metrics from sums over rows.

    Args:
        sums: nats, targets, bytes, words.
        with_bytes: whether metrics over bytes and words make sense (no unknown tokens).

    Returns:
        nats_per_token, perplexity and, with_bytes, bits_per_byte and word_perplexity, each only where it is defined
        (not without bytes, no perplexity beyond float64).
    """
    found: dict[str, float] = {}
    nats = sums["nats"]
    if sums["targets"]:
        found["nats_per_token"] = nats / sums["targets"]
        found |= _exp("perplexity", found["nats_per_token"])
    if with_bytes and sums["bytes"]:
        found["bits_per_byte"] = nats / math.log(2) / sums["bytes"]
    if with_bytes and sums["words"]:
        found |= _exp("word_perplexity", nats / sums["words"])
    return found


def _exp(name: str, exponent: float) -> dict[str, float]:
    return {name: math.exp(exponent)} if exponent < _LARGEST_EXPONENT else {}


def summarise(rows: Sequence[Row], unit: str, how: Resampling) -> dict[str, float | str]:
    """Return all metrics of a language model with their intervals.

    Args:
        rows: the rows of `score_documents`.
        unit: the corpus's name of a group.
        how: the bootstrap.

    Raises:
        UserError: there are no rows.
    """
    if not rows:
        raise UserError("the test split is empty; give `splits.test` of the corpus a larger share")
    columns = ("nats", "targets", "bytes", "words", "unknown")
    values = np.array([[float(row[column]) for column in columns] for row in rows])
    total = dict(zip(columns, values.sum(axis=0).tolist(), strict=True))
    with_bytes = total["unknown"] == 0

    def score(weights: Weights) -> dict[str, float]:
        return language_model_metrics(dict(zip(columns, (weights @ values).tolist(), strict=True)), with_bytes)

    metrics = language_model_metrics(total, with_bytes)
    units = resampling_units(rows, unit, f"block of {BLOCK} characters")
    found = with_intervals(metrics, score, units, how)
    found |= {column: int(total[column]) for column in columns[1:]}
    if not with_bytes:
        found["refused"] = "bits_per_byte, word_perplexity: the tokenizer made unknown tokens"
    return found


def loss_by_position(log_probabilities: Sequence[Floats], context: int, overlap: float = 0.0) -> Floats:
    """Return mean nats per target at each position of the scoring window, (context,); NaN where there is none.

    A position is how many tokens the target sees besides the one before it.
    """
    sums, counts = np.zeros(context), np.zeros(context)
    for values in log_probabilities:
        positions = window_positions(len(values), context, overlap)
        sums += np.bincount(positions, weights=-values, minlength=context)
        counts += np.bincount(positions, minlength=context)
    return np.divide(sums, counts, out=np.full(context, np.nan), where=counts > 0)


def _default(challenger: Sequence[Row], champion: Sequence[Row]) -> str:
    """Return bits_per_byte, or nats_per_token if a tokenizer that both share made unknown tokens."""
    if not any(row.get("unknown", 0) for rows in (challenger, champion) for row in rows):
        return "bits_per_byte"
    for first, second in zip(challenger, champion, strict=True):
        if first["targets"] != second["targets"] or first.get("unknown", 0) != second.get("unknown", 0):
            raise UserError(
                "the two language models have different tokenizers and one of them makes unknown tokens, so their"
                " losses cannot be compared; use a tokenizer without unknown tokens, such as bpe or byte"
            )
    return "nats_per_token"


def _score(metric: str) -> tuple[Callable[[NDArray[Any]], float], Callable[[Row], list[float]]]:
    if metric == "bits_per_byte":
        return lambda sums: ratio(sums[0] / math.log(2), sums[1]), lambda row: [row["nats"], row["bytes"]]
    return lambda sums: ratio(sums[0], sums[1]), lambda row: [row["nats"], row["targets"]]


def _slices(rows: Sequence[Row]) -> dict[str, list[int]]:
    """Slice by group if there are few, else into thirds by length."""
    groups = {row["group"] for row in rows}
    if 2 <= len(groups) <= _MOST_GROUPS:
        return by_key(rows, lambda row: str(row["group"]))
    return by_thirds(rows, lambda row: int(row["bytes"]))


TEST = PairedTest(
    same=("group", "bytes", "text_sha256"),
    metrics={"bits_per_byte": False, "nats_per_token": False},
    score=_score,
    default=_default,
    slices=_slices,
)
