"""Causal softmax attention as a mixer of the causal skeleton.

Shape letters: B batch, T time, D width, H heads, K head width.
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from lexmill.models.common.attention import KeyValueCache, SelfAttention
from lexmill.models.common.documents import document_mask
from lexmill.models.common.mixer import Split, State


class CausalAttention(nn.Module):
    """Base of softmax attention mixers; the cache holds keys and values of all positions, so cost grows with length."""

    unlimited: ClassVar[bool] = False
    n_head: int
    d_head: int

    def new_state(self, capacity: int) -> State:
        """Return an empty cache."""
        return KeyValueCache(capacity)

    def flops(self, context: int) -> int:
        """Return FLOPs of scores and sums per token, causal counted as full (Chowdhery et al. 2022, appendix B)."""
        return 12 * context * self.n_head * self.d_head

    def activation_bytes(self, low: int) -> int:
        """Return the bytes of a token's query, key, value and output, and of one softmax statistic per head."""
        return low * 4 * self.n_head * self.d_head + 4 * self.n_head


class CausalSelfAttention(CausalAttention, SelfAttention):
    """`SelfAttention` over earlier positions of the same document."""

    def shared(self, tokens: Tensor, start: int, documents: Tensor | None) -> Tensor | None:
        """Return which queries may see which keys, (B, 1, T, T); None: causal attention."""
        return None if documents is None else document_mask(documents)

    def forward(self, hidden: Tensor, shared: Tensor | None, state: KeyValueCache | None = None) -> Tensor:  # type: ignore[override]
        """(B, T, D) -> (B, T, D); with a state the queries are the last T of its length + T positions."""
        return SelfAttention.forward(self, hidden, mask=shared, causal=shared is None, cache=state)

    def split(self) -> Split:
        """Split by heads."""
        return {"query_key_value": "columns", "output": "rows"}
