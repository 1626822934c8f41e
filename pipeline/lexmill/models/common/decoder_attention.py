"""Grouped-query attention with every option: five kinds of positions, a window, normed queries and keys.

Positions are rotations of queries and keys, or a bias on the scores that depends on the distance, or nothing (those
that an embedding adds are the network's). In a window of w, a query sees itself and the w - 1 positions before it
(Beltagy et al. 2020). Normed queries and keys (Dehghani et al. 2023) have a mean square of 1 before the rotation.
Cost: as of `GroupedAttention`, with 2 * w in place of S where that is less: a long text in a window is read in blocks,
and its cache holds w - 1 positions. Where all is read at once, what a window or a document hides is computed too.

Shape letters: B batch, T queries, S keys, D width, H query heads, G key and value heads, K head width.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import rms_norm

from lexmill.models.common.attention import KeyValueCache
from lexmill.models.common.documents import document_mask
from lexmill.models.common.grouped_attention import GroupedAttention, repeated
from lexmill.models.common.local_attention import WindowCache, attend_window, block_distances, in_blocks
from lexmill.models.common.mixer import Split
from lexmill.models.common.position_bias import RelativeBias, alibi_slopes, distances
from lexmill.models.common.rotary import Rotation

Positions = Literal["none", "sinusoidal", "learned", "rotary", "alibi", "relative"]


class Blocks(NamedTuple):
    """How blocks of a window attend, see `attend_window`."""

    bias: Tensor | None
    documents: Tensor | None


class DecoderAttention(GroupedAttention):
    """Causal attention of a sequence over itself.

    Args:
        positions: the kind; only rotary, alibi and relative are the attention's.
        window: positions that a query sees, itself included; 0: all.
        qk_norm: norm queries and keys, each head by itself.
        relative: the bias by distance, of the first of all layers.
    """

    def __init__(
        self,
        d_model: int,
        n_head: int,
        n_kv_head: int,
        d_head: int,
        *,
        positions: Positions = "rotary",
        window: int = 0,
        qk_norm: bool = False,
        bias: bool = False,
        theta: float = 10000.0,
        relative: RelativeBias | None = None,
    ) -> None:
        super().__init__(d_model, n_head, n_kv_head, d_head, theta=theta, bias=bias)
        self.positions, self.window, self.qk_norm = positions, window, qk_norm
        self.relative = relative

    def shared(self, tokens: Tensor, start: int, documents: Tensor | None) -> tuple[Rotation | None, Any]:
        """Return the positions' rotation, and which keys a query may see or what is added to the scores."""
        by = self._rotation(tokens, start, documents) if self.positions == "rotary" else None
        t = tokens.shape[1]
        if start == 0 and in_blocks(t, self.window):
            return by, Blocks(self._bias(block_distances(self.window, tokens.device)), documents)
        before = min(start, self.window - 1) if self.window else start  # what the cache holds
        return by, self._mask(t, before + t, documents, tokens.device)

    def _mask(self, t: int, s: int, documents: Tensor | None, device: torch.device) -> Tensor | None:
        """Return None (causal), or (1 or B, 1 or H, T, S): what a query may see, or the bias, -inf where it may not."""
        apart = distances(t, s, device)  # (T, S)
        bias = self._bias(apart)
        if bias is None and not 0 < self.window < s:
            return None if documents is None else document_mask(documents)
        seen = ((apart >= 0) & (apart < (self.window or s)))[None, None]
        if documents is not None:
            seen = seen & document_mask(documents)
        return seen if bias is None else bias[None].masked_fill(~seen, -torch.inf)

    def _bias(self, apart: Tensor) -> Tensor | None:
        """Return what is added to the scores of keys so far before their query: (T, S) -> (H, T, S), or None."""
        if self.positions == "alibi":
            return -alibi_slopes(self.n_head).to(apart.device)[:, None, None] * apart
        return None if self.relative is None else self.relative(apart)

    def _attended(self, query: Tensor, keys: Tensor, values: Tensor, mask: Any) -> Tensor:
        if not isinstance(mask, Blocks):
            return super()._attended(query, keys, values, mask)
        keys, values = (repeated(part, query.shape[1]) for part in (keys, values))
        return attend_window(query, keys, values, self.window, bias=mask.bias, groups=mask.documents)

    def new_state(self, capacity: int) -> KeyValueCache | WindowCache:  # type: ignore[override]
        """Return an empty cache."""
        return WindowCache(self.window) if self.window else KeyValueCache(capacity)

    def flops(self, context: int) -> int:
        """Return FLOPs of scores and sums per token, in a window those of its blocks."""
        if not in_blocks(context, self.window):
            return super().flops(context)
        blocks = -(-context // self.window)
        return 12 * self.n_head * self.d_head * blocks * self.window * 2 * self.window // context

    def _placed(self, heads: Tensor, by: Rotation | None) -> Tensor:
        return super()._placed(rms_norm(heads, (self.d_head,)) if self.qk_norm else heads, by)

    def split(self) -> Split | None:
        """Split by heads; not where a bias differs from head to head."""
        return None if self.positions in ("alibi", "relative") else super().split()
