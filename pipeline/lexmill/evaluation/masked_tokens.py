"""How well a network predicts the tokens of a test split from both sides, each masked.

A row is a block of about 8,000 characters of a document, the same for every tokenizer: {"id", "group", "nats",
"targets", "right", "bytes", "unknown", "text_sha256"}. Each token but unknown ones is masked once, a seventh of them at
a time: so every token counts, at about the cost of seven passes, under the same conditions as in training. The
mean is nats a masked token. Masked bits per byte is the same sum over the bytes of the text, for
networks with different tokenizers; it is left out where there are unknown tokens.

Shape letters: T tokens, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from lexmill.base import progress
from lexmill.base.errors import UserError
from lexmill.base.storage import sha256_bytes
from lexmill.evaluation.blocks import cuts
from lexmill.evaluation.bootstrap import Resampling, Weights, resampling_units, with_intervals
from lexmill.evaluation.rows import Row, spread
from lexmill.evaluation.significance import ratio

if TYPE_CHECKING:
    from lexmill.evaluation.subject import Subject
    from lexmill.tokenizers import Tokenizer

Flags = npt.NDArray[np.bool_]
_SUMS = ("nats", "targets", "right", "bytes")
_TOGETHER = 64  # blocks between progress updates


class Scores(Protocol):
    """Of the tokens of a text: nats, (T,), and whether the most probable one is right, (T,); of special ones 0."""

    @property
    def nats(self) -> npt.NDArray[np.float64]: ...

    @property
    def right(self) -> Flags: ...


class Reader(Protocol):
    """What predicts masked tokens."""

    @property
    def special(self) -> Flags:
        """Which tokens are never masked, (V,)."""

    @property
    def room(self) -> int:
        """Tokens of text that it reads at once."""

    def scores(self, texts: Sequence[Sequence[int]], *, batch_tokens: int, alone: bool = False) -> Sequence[Scores]:
        """Score texts given as token ids, a seventh of the tokens masked at a time, or each `alone`."""


def blocks(records: Iterable[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """Return the blocks of text records: id, group, text."""
    found = []
    for record in records:
        ends = cuts(record["text"])
        for number, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            found.append((f"{record['id']}/{number}", record["group"], record["text"][start:end]))
    return found


def block_row(
    block: tuple[str, str, str], ids: Sequence[int], values: Scores, special: Flags, tokenizer: Tokenizer
) -> Row:
    """Return the row of a block from the scores of its tokens."""
    name, group, text = block
    ordinary = ~special[np.asarray(ids, dtype=np.int64)]
    data = tokenizer.normalize(text).encode("utf-8")
    return {
        "id": name,
        "group": group,
        "nats": float(values.nats.sum()),
        "targets": int(ordinary.sum()),
        "right": int(values.right.sum()),
        "bytes": len(data),
        "unknown": int((~ordinary).sum()),
        "text_sha256": sha256_bytes(data),
    }


def rows(subject: Subject, reader: Reader) -> list[Row]:
    """Return the rows, a block of a document each."""
    found: list[Row] = []
    pending = blocks(subject.records())
    with progress.bar(f"evaluate {subject.words}", len(pending)) as bar:
        for start in range(0, len(pending), _TOGETHER):
            some = pending[start : start + _TOGETHER]
            ids = subject.tokenizer.encode_batch([text for _, _, text in some])
            scored = reader.scores(ids, batch_tokens=subject.evaluation.batch_tokens)
            for block, tokens, values in zip(some, ids, scored, strict=True):
                found.append(block_row(block, tokens, values, reader.special, subject.tokenizer))
            bar.update(len(some))
    return found


def pseudo_perplexity(subject: Subject, reader: Reader, wanted: int) -> dict[str, float]:
    """Return the pseudo-perplexity (Salazar et al. 2020) of blocks spread over the test split, and its tokens.

    It is exp of the mean nats of tokens, each masked alone.

    Args:
        wanted: tokens; 0: none, and {} is returned.
    """
    texts = [text for _, _, text in blocks(subject.records())] if wanted else []
    every = [ids[: reader.room] for ids in subject.tokenizer.encode_batch(texts)]
    whole, nats, count = sum(map(len, every)), 0.0, 0
    for i in spread(len(every), -(-wanted * len(every) // whole)) if whole else ():
        (found,) = reader.scores([every[i]], batch_tokens=subject.evaluation.batch_tokens, alone=True)
        nats, count = nats + float(found.nats.sum()), count + int((~reader.special[every[i]]).sum())
    return {"pseudo_perplexity": math.exp(min(nats / count, 700.0)), "pseudo_tokens": count} if count else {}


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
