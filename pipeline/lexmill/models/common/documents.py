"""Documents packed into one window: attention masks and positions within each document.

Shape letters: B batch, T time.
"""

from __future__ import annotations

import torch
from torch import Tensor


def document_positions(documents: Tensor) -> Tensor:
    """Return the place of each position within its document, from 0: (B, T) -> (B, T) int64.

    Args:
        documents: (B, T) int64, the document number of each position; a document is one run of positions.
    """
    places = torch.arange(documents.shape[1], device=documents.device).expand_as(documents)
    first = torch.ones_like(documents, dtype=torch.bool)
    first[:, 1:] = documents[:, 1:] != documents[:, :-1]
    starts = (places * first).cummax(dim=1).values
    return places - starts


def document_mask(documents: Tensor) -> Tensor:
    """Return the mask of causal attention within each document: (B, T) -> (B, 1, T, T) bool."""
    same = documents[:, None, :, None] == documents[:, None, None, :]
    return same.tril_()
