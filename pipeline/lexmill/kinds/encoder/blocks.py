"""Blocks of texts, and the rows that the scores of their tokens make."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lexmill.base.storage import sha256_bytes
from lexmill.data.masking import Vocabulary
from lexmill.decoding.masked_tokens import Scores
from lexmill.evaluation.blocks import cuts
from lexmill.evaluation.rows import Row

if TYPE_CHECKING:
    from lexmill.tokenizers import Tokenizer


def blocks(records: Iterable[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """Return the blocks of text records: id, group, text."""
    found = []
    for record in records:
        ends = cuts(record["text"])
        for number, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            found.append((f"{record['id']}/{number}", record["group"], record["text"][start:end]))
    return found


def block_row(
    block: tuple[str, str, str], ids: Sequence[int], values: Scores, words: Vocabulary, tokenizer: Tokenizer
) -> Row:
    """Return the row of a block from the scores of its tokens."""
    name, group, text = block
    ordinary = ~words.special[np.asarray(ids, dtype=np.int64)]
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
