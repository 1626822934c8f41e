"""Attention over the source with fewer key and value heads than query heads (Ainslie et al. 2023).

Shape letters: B sources, T queries, S source length, D width, H query heads, G key and value heads, K head width.
"""

from __future__ import annotations

from torch import Tensor, nn

from lexmill.models.common.attention import CrossAttention, attend, softmax_at, split_heads
from lexmill.models.common.grouped_attention import repeated


class GroupedCrossAttention(CrossAttention):
    """Attention of the targets over their source; with G = H it is `CrossAttention`.

    Cost: 2 * D * K * (H + G) multiply-adds a token for the projections; the cache shrinks by H / G.
    """

    def __init__(self, d_model: int, n_head: int, n_kv_head: int) -> None:
        super().__init__(d_model, n_head)
        self.n_kv_head = n_kv_head
        if n_kv_head < n_head:
            self.key_value = nn.Linear(d_model, 2 * n_kv_head * (d_model // n_head))

    def project(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values (B, G, S, K) of a memory (B, S, D); computed once for all decoding steps."""
        keys, values = self.key_value(memory).chunk(2, dim=-1)
        return split_heads(keys, self.n_kv_head), split_heads(values, self.n_kv_head)

    def forward(
        self,
        hidden: Tensor,
        memory: Tensor | None,
        mask: Tensor | None = None,
        projected: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        """See `CrossAttention`; the mask is (B, 1, 1, S)."""
        if self.n_kv_head == self.n_head or projected is None:
            return super().forward(hidden, memory, mask, projected)
        keys, values = projected
        query = split_heads(self.query(hidden), self.n_head)  # (B, H, T, K)
        # All queries see the same keys, so those of a group pass as positions, and no key is copied.
        time, shared = query.shape[2], query.unflatten(1, (self.n_kv_head, -1)).flatten(2, 3)  # (B, G, H / G * T, K)
        found = attend(shared, keys, values, mask=mask, causal=False)  # (B, H / G * T, G * K)
        heads = found.unflatten(1, (-1, time)).unflatten(3, (self.n_kv_head, -1))  # (B, H / G, T, G, K)
        out: Tensor = self.output(heads.permute(0, 2, 3, 1, 4).flatten(2))
        return out

    def weights(self, hidden: Tensor, keys: Tensor, source_mask: Tensor) -> Tensor:
        """Return the mean over the heads of the source's weights, (B, T, S), for `project`ed keys and a mask (B, S)."""
        query = split_heads(self.query(hidden), self.n_head)
        scores = query @ repeated(keys, self.n_head).transpose(2, 3) * keys.size(3) ** -0.5
        return softmax_at(scores, source_mask[:, None, None]).mean(dim=1)
