"""Grouped-query self-attention with rotary positions (Ainslie et al. 2023; Su et al. 2021).

Each key and value head serves n_head / n_kv_head query heads, so that the cache is smaller by that factor; one key
and value head for each query head is plain attention. Projections have no bias and are separate matrices, named as
in Llama. Under tensor parallelism each device holds some heads of each kind and their share of the matrices.
Cost: 2 * D * K * (n_head + n_kv_head) multiply-adds a token for the projections, 2 * S * K * n_head for the rest.

Shape letters: B batch, T queries, S keys, D width, H query heads, G key and value heads, K head width.
"""

from __future__ import annotations

from torch import Tensor, nn

from lexmill.models.common.attention import KeyValueCache, attend
from lexmill.models.common.rotary import Rotation, rotate


class GroupedAttention(nn.Module):
    """Causal attention of a sequence over itself."""

    def __init__(self, d_model: int, n_head: int, n_kv_head: int, d_head: int) -> None:
        super().__init__()
        if n_head % n_kv_head:
            raise ValueError(f"n_kv_head {n_kv_head} does not divide n_head {n_head}")
        self.d_head = d_head
        self.query = nn.Linear(d_model, n_head * d_head, bias=False)
        self.key = nn.Linear(d_model, n_kv_head * d_head, bias=False)
        self.value = nn.Linear(d_model, n_kv_head * d_head, bias=False)
        self.output = nn.Linear(n_head * d_head, d_model, bias=False)

    def forward(
        self,
        hidden: Tensor,
        rotation: Rotation,
        mask: Tensor | None = None,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        """(B, T, D) -> (B, T, D); with a cache the queries are the last T of the cache's length + T positions.

        Args:
            rotation: of the T positions.
            mask: broadcastable to (B, H, T, S), true where a query may look; None: causal.
        """
        query, keys, values = (
            linear(hidden).unflatten(-1, (-1, self.d_head))  # (B, T, H or G, K)
            for linear in (self.query, self.key, self.value)
        )
        query, keys = rotate(query, rotation), rotate(keys, rotation)
        query, keys, values = (part.transpose(1, 2) for part in (query, keys, values))  # (B, H or G, T, K)
        if cache is not None:
            keys, values = cache.append(keys, values)
        out: Tensor = self.output(_grouped(query, keys, values, mask))
        return out


def _grouped(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """(B, H, T, K) queries over (B, G, S, K) keys and values; returns (B, T, H * K)."""
    batch, heads, t, width = query.shape
    groups = keys.shape[1]
    if groups == heads:
        return attend(query, keys, values, mask=mask, causal=mask is None)
    if t == 1 and mask is None:
        # One token sees all keys, so the queries of a group stand side by side as if they were positions, and the
        # cache is read once.
        shared = query.view(batch, groups, heads // groups, width)
        out = attend(shared, keys, values, mask=None, causal=False)  # (B, H / G, G * K)
        return out.unflatten(-1, (groups, width)).transpose(1, 2).reshape(batch, 1, heads * width)
    keys, values = (part.repeat_interleave(heads // groups, dim=1) for part in (keys, values))  # (B, H, S, K)
    return attend(query, keys, values, mask=mask, causal=mask is None)
