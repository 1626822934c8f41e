"""Texts as padded arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lexmill.tokenizers import Tokenizer


def arrays(tokenizer: Tokenizer, texts: Sequence[str], max_tokens: int) -> dict[str, np.ndarray[Any, Any]]:
    """`tokens` (B, T) int64 and `mask` (B, T), true at real tokens; an empty text is its end token alone."""
    ids = [(found or [tokenizer.eos_id])[:max_tokens] for found in tokenizer.encode_batch(texts)]
    tokens = np.full((len(ids), max_tokens), tokenizer.pad_id, dtype=np.int64)
    for row, one in zip(tokens, ids, strict=True):
        row[: len(one)] = one
    return {"tokens": tokens, "mask": np.arange(max_tokens)[None, :] < np.array([len(one) for one in ids])[:, None]}
