"""Grouped-query attention with every option: five kinds of positions, a window, normed queries and keys.

Positions are rotations of queries and keys, or a bias on the scores that depends on the distance, or nothing (those
that an embedding adds are the network's). In a window of w, a query sees itself and the w - 1 positions before it
(Beltagy et al. 2020). Normed queries and keys (Dehghani et al. 2023) have a mean square of 1 before the rotation.
Cost: as of `GroupedAttention`, with 2 * w in place of S where that is less: a long text in a window is read in blocks,
and its cache holds w - 1 positions. Where all is read at once, what a window or a document hides is computed too.

Shape letters: B batch, T queries, S keys, D width, H query heads, G key and value heads, K head width.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import rms_norm

from lexmill.models.common.attention import KeyValueCache
from lexmill.models.common.grouped_attention import GroupedAttention, repeated
from lexmill.models.common.local_attention import Blocks, WindowCache, attend_window, in_blocks, window_mask
from lexmill.models.common.mixer import Split
from lexmill.models.common.position_bias import RelativeBias, alibi_slopes
from lexmill.models.common.rotary import Rotation

Positions = Literal["none", "sinusoidal", "learned", "rotary", "alibi", "relative"]


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

    def shared(self, tokens: Tensor, start: int, documents: Tensor | None) -> Any:
        """Return the positions' rotation, and which keys a query may see or what is added to the scores."""
        by = self._rotation(tokens, start, documents) if self.positions == "rotary" else None
        return by, window_mask(tokens, start, self.window, documents, self._bias)

    def _bias(self, apart: Tensor) -> Tensor | None:
        """Return what is added to the scores of keys so far before their query: (T, S) -> (H, T, S), or None."""
        if self.positions == "alibi":
            # Not in float32 beside float64 queries: torch's kernel for AVX2 misreads such a mask.
            dtype = torch.promote_types(torch.float32, self.output.weight.dtype)
            return -alibi_slopes(self.n_head).to(apart.device, dtype)[:, None, None] * apart
        return None if self.relative is None else self.relative(apart)

    def _attended(self, query: Tensor, keys: Tensor, values: Tensor, mask: Any) -> Tensor:
        if not isinstance(mask, Blocks):
            return super()._attended(query, keys, values, mask)
        keys, values = (repeated(part, query.shape[1]) for part in (keys, values))
        return attend_window(query, keys, values, self.window, bias=mask.bias, groups=mask.groups)

    def new_state(self, capacity: int) -> KeyValueCache | WindowCache:
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
