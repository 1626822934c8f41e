"""Causal softmax attention as a mixer of the causal skeleton.

Shape letters: B batch, T time, D width, H heads, K head width.
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from lexmill.models.common.attention import KeyValueCache, SelfAttention
from lexmill.models.common.documents import document_mask
from lexmill.models.common.mixer import Split


class CausalAttention(nn.Module):
    """What every softmax attention has in common as a mixer.

    Its cost grows with the text: the cache holds the keys and values of all positions.
    """

    unlimited: ClassVar[bool] = False
    n_head: int
    d_head: int

    def new_state(self, capacity: int) -> KeyValueCache:
        """No keys and values yet."""
        return KeyValueCache(capacity)

    def flops(self, context: int) -> int:
        """Scores and sums of a token; causal attention counts whole (Chowdhery et al. 2022, appendix B)."""
        return 12 * context * self.n_head * self.d_head

    def activation_bytes(self, low: int) -> int:
        """Query, key, value and output of a token, and a statistic of each head's softmax."""
        return low * 4 * self.n_head * self.d_head + 4 * self.n_head


class CausalSelfAttention(CausalAttention, SelfAttention):
    """`SelfAttention` that never looks ahead, nor at another document."""

    def shared(self, tokens: Tensor, start: int, documents: Tensor | None) -> Tensor | None:
        """Which queries may see which keys, (B, 1, T, T); None: causal attention."""
        return None if documents is None else document_mask(documents)

    def forward(self, hidden: Tensor, shared: Tensor | None, state: KeyValueCache | None = None) -> Tensor:  # type: ignore[override]
        """(B, T, D) -> (B, T, D); with a state the queries are the last T of its length + T positions."""
        return SelfAttention.forward(self, hidden, mask=shared, causal=shared is None, cache=state)

    def split(self) -> Split:
        """Whole heads over the devices."""
        return {"query_key_value": "columns", "output": "rows"}
