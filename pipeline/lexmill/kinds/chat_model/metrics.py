"""Metrics of a chat model, from its rows: bits per byte and perplexity of the answers, preferences.

A row is a conversation: {"id", "group", "nats", "targets", "bytes", "unknown", "text_sha256"}, over all answers in it,
end tokens included. With a rejected answer it also has "chosen_nats" and "rejected_nats", of the last answer and of the
rejected one; the model prefers what has fewer. With unknown tokens bits per byte would be wrong, so it is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lexmill.base.errors import UserError
from lexmill.base.storage import sha256_bytes
from lexmill.data.conversations import ASSISTANT, Encoded, encode, messages_of
from lexmill.evaluation.bootstrap import Resampling, Weights, resampling_units, with_intervals
from lexmill.evaluation.preferences import preferred
from lexmill.evaluation.rows import Row
from lexmill.evaluation.scoring import Scorer
from lexmill.evaluation.significance import PairedTest, by_thirds, ratio
from lexmill.tokenizers import Tokenizer

_BATCH = 64  # conversations scored at a time
_COLUMNS = ("nats", "targets", "bytes", "unknown")


def score(records: Iterable[Mapping[str, Any]], tokenizer: Tokenizer, scorer: Scorer) -> Iterator[Row]:
    """Yield a row for each conversation, in order."""
    some: list[Mapping[str, Any]] = []
    for record in records:
        some.append(record)
        if len(some) == _BATCH:
            yield from _rows(some, tokenizer, scorer)
            some = []
    yield from _rows(some, tokenizer, scorer)


def _rows(records: Sequence[Mapping[str, Any]], tokenizer: Tokenizer, scorer: Scorer) -> Iterator[Row]:
    found = _nats([messages_of(record) for record in records], tokenizer, scorer)
    both = [record for record in records if "rejected" in record]
    others = iter(_nats([messages_of(record, record["rejected"]) for record in both], tokenizer, scorer))
    for record, (encoded, nats) in zip(records, found, strict=True):
        answers = [message["content"] for message in record["messages"] if message["role"] == ASSISTANT]
        data = "\0".join(tokenizer.normalize(answer) for answer in answers).encode("utf-8")
        learned = encoded.ids[encoded.learned]
        row = {
            "id": record["id"],
            "group": record["group"],
            "nats": float(nats.sum()),
            "targets": len(learned),
            "bytes": len(data) - len(answers) + 1,
            "unknown": int((learned == tokenizer.unk_id).sum()) if tokenizer.unk_id is not None else 0,
            "text_sha256": sha256_bytes(data),
        }
        if "rejected" in record:
            other, theirs = next(others)
            row["chosen_nats"], row["rejected_nats"] = _of_last(encoded, nats), _of_last(other, theirs)
        yield row


def _nats(
    conversations: Sequence[Any], tokenizer: Tokenizer, scorer: Scorer
) -> list[tuple[Encoded, NDArray[np.float64]]]:
    """Return the tokens of each conversation, and the nats of those that are learned."""
    encoded = encode(tokenizer, conversations)
    scores = scorer.log_probabilities([one.ids[1:-1].tolist() for one in encoded])
    return [(one, -values[one.learned[1:]]) for one, values in zip(encoded, scores, strict=True)]


def _of_last(encoded: Encoded, nats: NDArray[np.float64]) -> float:
    """Return the nats of the last answer."""
    last = len(encoded.learned) - 1 - int(np.flatnonzero(~encoded.learned)[-1])
    return float(nats[len(nats) - last :].sum())


def _right(row: Row) -> float:
    return preferred(-row["chosen_nats"], -row["rejected_nats"])


def summarise(rows: Sequence[Row], unit: str, how: Resampling) -> dict[str, float | str]:
    """Return all metrics with their intervals.

    Raises:
        UserError: there are no rows.
    """
    if not rows:
        raise UserError("the test split is empty; give `splits.test` of the corpus a larger share")
    values = np.array([[float(row[column]) for column in _COLUMNS] for row in rows])
    with_bytes, with_pairs = not values[:, 3].any(), all("rejected_nats" in row for row in rows)
    chosen = np.array([_right(row) for row in rows]) if with_pairs else np.zeros(len(rows))

    def found(weights: Weights) -> dict[str, float]:
        nats, targets, size, _ = (weights @ values).tolist()
        metrics = {"nats_per_token": nats / targets, "perplexity": math.exp(min(700.0, nats / targets))}
        if with_bytes and size:
            metrics["bits_per_byte"] = nats / math.log(2) / size
        if with_pairs:
            metrics["preference_accuracy"] = float(weights @ chosen / weights.sum())
        return metrics

    metrics = found(np.ones(len(rows), dtype=np.int64))
    summary = with_intervals(metrics, found, resampling_units(rows, unit, "conversation"), how)
    summary |= {"conversations": len(rows), "targets": int(values[:, 1].sum()), "bytes": int(values[:, 2].sum())}
    if not with_bytes:
        summary["refused"] = "bits_per_byte: the tokenizer made unknown tokens"
    return summary


def _default(challenger: Sequence[Row], champion: Sequence[Row]) -> str:
    """Return preference_accuracy where each row has a rejected answer, else bits_per_byte."""
    rows = [*challenger, *champion]
    if all("rejected_nats" in row for row in rows):
        return "preference_accuracy"
    if any(row["unknown"] for row in rows):
        raise UserError(
            "the tokenizer of one of the two chat models makes unknown tokens, so their losses cannot be compared; use"
            " a tokenizer without unknown tokens, such as bpe or byte"
        )
    return "bits_per_byte"


def _score(metric: str) -> tuple[Callable[[NDArray[Any]], float], Callable[[Row], list[float]]]:
    if metric == "preference_accuracy":
        return lambda sums: ratio(sums[0], sums[1]), lambda row: [_right(row), 1]
    return lambda sums: ratio(sums[0] / math.log(2), sums[1]), lambda row: [row["nats"], row["bytes"]]


TEST = PairedTest(
    same=("group", "bytes", "text_sha256"),
    metrics={"preference_accuracy": True, "bits_per_byte": False},
    score=_score,
    default=_default,
    slices=lambda rows: by_thirds(rows, lambda row: int(row["bytes"])),
)
