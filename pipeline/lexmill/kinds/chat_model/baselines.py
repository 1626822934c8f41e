"""What a chat model must beat: an n-gram over the bytes of the answers; with rejected answers, the longer one.

The n-gram has order 5, interpolated as Witten and Bell (1991) do: a context of count c with d different successors
leaves d / (c + d) of its probability to the next shorter context, the empty one to all 257 symbols alike.
Cost: a pass over the answers; memory O(different n-grams).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lexmill.base.storage import sha256_bytes
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.data.conversations import ASSISTANT
from lexmill.evaluation.bootstrap import Resampling
from lexmill.evaluation.rows import Row
from lexmill.evaluation.subject import Baseline
from lexmill.kinds.chat_model.metrics import summarise
from lexmill.params import Baseline as Chosen

ORDER = 5
_END = 256
_SYMBOLS = 257


def baselines(_: Chosen, corpus: PreparedCorpus, how: Resampling) -> Iterator[Baseline]:
    """Yield the n-gram and, where every conversation has a rejected answer, the longer answer."""
    ngram = ByteNgram(answer for record in corpus.records("train") for answer in answers(record))
    records = list(corpus.records("test"))
    rows = [_row(record, ngram) for record in records]
    yield Baseline("byte_ngram", rows, summarise(rows, corpus.unit, how))
    if records and all("rejected" in record for record in records):
        longer = [_longer(record, row) for record, row in zip(records, rows, strict=True)]
        found = {k: v for k, v in summarise(longer, corpus.unit, how).items() if k.startswith("preference_accuracy")}
        yield Baseline("longer_answer", longer, found)


def answers(record: Mapping[str, Any]) -> list[str]:
    """Return the assistant's messages."""
    return [message["content"] for message in record["messages"] if message["role"] == ASSISTANT]


class ByteNgram:
    """An n-gram over bytes and the end of an answer, fitted on answers."""

    def __init__(self, answers: Iterator[str], order: int = ORDER) -> None:
        self.order = order
        self.counts: dict[bytes, Counter[int]] = defaultdict(Counter)
        for answer in answers:
            for context, symbol in self._symbols(answer):
                for length in range(len(context) + 1):
                    self.counts[context[len(context) - length :]][symbol] += 1

    def _symbols(self, answer: str) -> Iterator[tuple[bytes, int]]:
        """Yield each symbol of an answer after the bytes before it."""
        data = answer.encode("utf-8")
        for at, symbol in enumerate([*data, _END]):
            yield data[max(0, at - self.order + 1) : at], symbol

    def probability(self, context: bytes, symbol: int) -> float:
        """Return the probability of a byte, or of the end (256), after at most order - 1 bytes."""
        found = 1 / _SYMBOLS
        for length in range(len(context) + 1):
            counts = self.counts.get(context[len(context) - length :])
            if counts is None:
                break  # no longer context was seen either
            total, kinds = counts.total(), len(counts)
            found = (counts[symbol] + kinds * found) / (total + kinds)
        return found

    def nats(self, answer: str) -> float:
        """Return the nats of an answer, its end included."""
        return -sum(math.log(self.probability(context, symbol)) for context, symbol in self._symbols(answer))


def _row(record: Mapping[str, Any], ngram: ByteNgram) -> Row:
    found = answers(record)
    data = [answer.encode("utf-8") for answer in found]
    row = {
        "id": record["id"],
        "group": record["group"],
        "nats": sum(map(ngram.nats, found)),
        "targets": sum(map(len, data)) + len(data),
        "bytes": sum(map(len, data)),
        "unknown": 0,
        "text_sha256": sha256_bytes(b"\0".join(data)),
    }
    if "rejected" in record:
        row["chosen_nats"], row["rejected_nats"] = ngram.nats(found[-1]), ngram.nats(record["rejected"])
    return row


def _longer(record: Mapping[str, Any], row: Row) -> Row:
    """Return a row that prefers the longer answer."""
    lengths: Sequence[int] = [len(answers(record)[-1]), len(record["rejected"])]
    return {**row, "chosen_nats": -float(lengths[0]), "rejected_nats": -float(lengths[1])}
