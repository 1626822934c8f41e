"""Causal softmax attention in a window, in O(T * window) time and memory (Beltagy et al. 2020), and its cache.

A query sees itself and the window - 1 positions before it. The sequence is cut into blocks as long as the window, so a
block's queries find all their keys in their own block and the one before: 2 * window scores a query, half of
them masked.

Shape letters: B batch, T queries, S keys, H heads, K head width, N blocks, W window.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from lexmill.models.common.documents import document_mask
from lexmill.models.common.position_bias import distances


def in_blocks(t: int, window: int) -> bool:
    """Return whether blocks need fewer scores than all T^2 pairs."""
    return window > 0 and -(-t // window) * window * 2 * window < t * t


def block_distances(window: int, device: torch.device) -> Tensor:
    """Return how far before each query of a block each key of it and the one before is: (W, 2 * W); ahead: negative."""
    places = torch.arange(2 * window, device=device)
    return places[window:, None] - places


class Blocks(NamedTuple):
    """How blocks attend, see `attend_window`."""

    bias: Tensor | None
    groups: Tensor | None


def window_mask(
    tokens: Tensor,
    start: int,
    window: int,
    documents: Tensor | None,
    bias: Callable[[Tensor], Tensor | None] = lambda apart: None,
) -> Tensor | Blocks | None:
    """Return what queries see after `start` positions of a text, in a window or (0) of all before them.

    Args:
        tokens: (B, T), the queries'.
        documents: (B, T) int64, the document of each position; None: each row is one.
        bias: what is added to the scores by distance, (T, S) -> (H, T, S), or None.

    Returns:
        None (causal attention); blocks; or (1 or B, 1 or H, T, S): what may be seen, or what is added to the scores,
        -inf where nothing may. S counts the keys that `WindowCache` gives.
    """
    t, device = tokens.shape[1], tokens.device
    if start == 0 and in_blocks(t, window):
        return Blocks(bias(block_distances(window, device)), documents)
    s = t + (min(start, window - 1) if window else start)
    apart = distances(t, s, device)  # (T, S)
    added = bias(apart)
    if added is None and not 0 < window < s:
        return None if documents is None else document_mask(documents)
    seen = ((apart >= 0) & (apart < (window or s)))[None, None]
    if documents is not None:
        seen = seen & document_mask(documents)
    return seen if added is None else added[None].masked_fill(~seen, -torch.inf)


def attend_window(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    window: int,
    *,
    bias: Tensor | None = None,
    groups: Tensor | None = None,
) -> Tensor:
    """Return the attention of each position over its window, (B, T, H * K), for (B, H, T, K) each.

    Args:
        window: W, positions that a query sees, itself included.
        bias: (H, W, 2 * W), added to the scores by `block_distances`.
        groups: (B, T) int64; a query sees only keys of its own number. None: all of the window.
    """
    batch, heads, t, _ = query.shape
    blocks = -(-t // window)
    query, keys, values = (blocks_of(part, blocks, window) for part in (query, keys, values))  # (B, H, N, W, K)
    keys, values = (torch.cat([before(part), part], dim=3) for part in (keys, values))  # (B, H, N, 2 * W, K)
    apart = block_distances(window, query.device)
    seen = ((apart >= 0) & (apart < window)).expand(blocks, -1, -1).clone()  # (N, W, 2 * W)
    seen[0, :, :window] = False  # nothing is before the first block
    mask = seen[None, None]  # (1 or B, 1 or H, N, W, 2 * W)
    if groups is not None:
        own = blocks_of(groups[:, None, :, None], blocks, window)  # (B, 1, N, W, 1)
        mask = mask & (own == torch.cat([before(own), own], dim=3).transpose(3, 4))
    if bias is not None:
        mask = bias[None, :, None].expand(batch, -1, blocks, -1, -1).masked_fill(~mask, -torch.inf)
    # The kernels take four axes: the blocks pass as heads.
    query, keys, values = (part.flatten(0, 1) for part in (query, keys, values))
    mask = mask.expand(batch, heads, -1, -1, -1).flatten(0, 1) if mask.shape[:2] != (1, 1) else mask[0]
    out = scaled_dot_product_attention(query, keys, values, attn_mask=mask)  # (B * H, N, W, K)
    return out.unflatten(0, (batch, heads)).flatten(2, 3)[:, :, :t].transpose(1, 2).flatten(2)


def blocks_of(part: Tensor, blocks: int, window: int) -> Tensor:
    """Cut (B, H, T, K) into blocks, the last one padded with zeros: (B, H, N, W, K)."""
    return pad(part, (0, 0, 0, blocks * window - part.shape[2])).unflatten(2, (blocks, window))


def before(part: Tensor) -> Tensor:
    """Return the block before each, (B, H, N, W, K); zeros before the first."""
    return pad(part[:, :, :-1], (0, 0, 0, 0, 1, 0))


class WindowCache:
    """Keys and values of the last W - 1 positions of one layer: its size does not grow with the text.

    Args:
        window: W.
    """

    def __init__(self, window: int) -> None:
        self.window = window
        self.length = 0
        self._keys: Tensor | None = None
        self._values: Tensor | None = None

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add (B, H, T, K) keys and values; return the last W - 1 before them and them, (B, H, S, K) each."""
        if self._keys is not None and self._values is not None:
            keys, values = torch.cat([self._keys, keys], dim=2), torch.cat([self._values, values], dim=2)
            self.length += keys.shape[2] - self._keys.shape[2]
        else:
            self.length += keys.shape[2]
        kept = max(keys.shape[2] - (self.window - 1), 0)
        self._keys, self._values = keys[:, :, kept:].clone(), values[:, :, kept:].clone()
        return keys, values

    def reorder(self, rows: Tensor) -> None:
        """Keep the batch rows `rows` (int64, (new B,)), in that order; repeats allowed (beam search)."""
        if self._keys is not None and self._values is not None:
            self._keys, self._values = self._keys.index_select(0, rows), self._values.index_select(0, rows)
