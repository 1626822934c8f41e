"""Batch sentences of similar length.

Shape letters: B sentences, S length with the end token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from lexmill.tokenizers.tokenizer import TRAINED, SpecialIds


def by_length(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Yield groups of indices of similar length, longest first, so that what does not fit into memory fails at once.

    A group has at most `batch_tokens` tokens, padding included, but at least one member.
    """
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    start = 0
    while start < len(order):
        size = max(1, batch_tokens // max(1, lengths[order[start]]))
        yield order[start : start + size]
        start += size


def pad_sources(
    sentences: Sequence[Sequence[int]], device: torch.device, special: SpecialIds = TRAINED
) -> tuple[Tensor, Tensor]:
    """Sentences without special tokens -> source and mask (B, S): each followed by the end token, then padding."""
    width = max(len(sentence) for sentence in sentences) + 1
    rows = [[*sentence, special.eos, *[special.pad] * (width - 1 - len(sentence))] for sentence in sentences]
    lengths = torch.tensor([len(sentence) + 1 for sentence in sentences])
    mask = torch.arange(width)[None, :] < lengths[:, None]
    return torch.tensor(rows, dtype=torch.int64).to(device), mask.to(device)
