"""Documents packed into one window: who may look at whom, and where each position stands in its document.

Shape letters: B batch, T time.
"""

from __future__ import annotations

import torch
from torch import Tensor


def document_positions(documents: Tensor) -> Tensor:
    """The place of each position within its document, from 0: (B, T) -> (B, T) int64.

    Args:
        documents: (B, T) int64, the number of the document that each position belongs to; one document is one run.
    """
    places = torch.arange(documents.shape[1], device=documents.device).expand_as(documents)
    first = torch.ones_like(documents, dtype=torch.bool)
    first[:, 1:] = documents[:, 1:] != documents[:, :-1]
    starts = (places * first).cummax(dim=1).values
    return places - starts


def document_mask(documents: Tensor) -> Tensor:
    """Causal attention within each document: (B, T) -> (B, 1, T, T) bool, true where a query may look."""
    same = documents[:, None, :, None] == documents[:, None, None, :]
    return same.tril_()
