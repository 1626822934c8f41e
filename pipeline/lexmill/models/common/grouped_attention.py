"""Grouped-query self-attention with rotary positions (Ainslie et al. 2023; Su et al. 2021).

Each key and value head serves n_head / n_kv_head query heads, which shrinks the cache by that factor (1: plain
attention). Projections are separate matrices without bias. Under tensor parallelism each device holds some heads of
each kind.
Cost: 2 * D * K * (n_head + n_kv_head) multiply-adds a token for the projections, 2 * S * K * n_head for the rest.

Shape letters: B batch, T queries, S keys, D width, H query heads, G key and value heads, K head width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from lexmill.models.common.attention import KeyValueCache, attend
from lexmill.models.common.causal_attention import CausalAttention
from lexmill.models.common.documents import document_mask, document_positions
from lexmill.models.common.local_attention import WindowCache
from lexmill.models.common.mixer import Split
from lexmill.models.common.rotary import Rotation, rotate, rotation


class GroupedAttention(CausalAttention):
    """Causal attention of a sequence over itself.

    Args:
        theta: base of the rotary wavelengths.
        bias: of the four projections.
    """

    def __init__(
        self, d_model: int, n_head: int, n_kv_head: int, d_head: int, *, theta: float = 10000.0, bias: bool = False
    ) -> None:
        super().__init__()
        if n_head % n_kv_head:
            raise ValueError(f"n_kv_head {n_kv_head} does not divide n_head {n_head}")
        self.n_head, self.d_head, self.theta = n_head, d_head, theta
        self.query = nn.Linear(d_model, n_head * d_head, bias=bias)
        self.key = nn.Linear(d_model, n_kv_head * d_head, bias=bias)
        self.value = nn.Linear(d_model, n_kv_head * d_head, bias=bias)
        self.output = nn.Linear(n_head * d_head, d_model, bias=bias)

    def shared(self, tokens: Tensor, start: int, documents: Tensor | None) -> Any:
        """Return the positions' rotation, and which queries may see which keys (None: causal attention)."""
        return self._rotation(tokens, start, documents), None if documents is None else document_mask(documents)

    def _rotation(self, tokens: Tensor, start: int, documents: Tensor | None) -> Rotation:
        if documents is None:
            places = torch.arange(start, start + tokens.shape[1], device=tokens.device)
        else:
            places = document_positions(documents)
        return rotation(places, self.d_head, self.theta)

    def forward(
        self,
        hidden: Tensor,
        shared: Any,
        state: KeyValueCache | WindowCache | None = None,
    ) -> Tensor:
        """(B, T, D) -> (B, T, D); with a state the queries are the last T of its length + T positions."""
        by, mask = shared
        query, keys, values = (
            linear(hidden).unflatten(-1, (-1, self.d_head))  # (B, T, H or G, K)
            for linear in (self.query, self.key, self.value)
        )
        query, keys = self._placed(query, by), self._placed(keys, by)
        query, keys, values = (part.transpose(1, 2) for part in (query, keys, values))  # (B, H or G, T, K)
        if state is not None:
            keys, values = state.append(keys, values)
        out: Tensor = self.output(self._attended(query, keys, values, mask))
        return out

    def _attended(self, query: Tensor, keys: Tensor, values: Tensor, mask: Any) -> Tensor:
        """Attend from (B, H, T, K) queries to (B, G, S, K) keys and values as `shared` says; return (B, T, H * K)."""
        return _grouped(query, keys, values, mask)

    def _placed(self, heads: Tensor, by: Rotation | None) -> Tensor:
        """Give queries or keys their positions: (B, T, H or G, K) -> (B, T, H or G, K)."""
        return heads if by is None else rotate(heads, by)

    def split(self) -> Split | None:
        """Split by heads."""
        return {"query": "columns", "key": "columns", "value": "columns", "output": "rows"}


def _grouped(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Attend from (B, H, T, K) queries to (B, G, S, K) keys and values; return (B, T, H * K)."""
    batch, heads, t, width = query.shape
    groups = keys.shape[1]
    if groups == heads:
        return attend(query, keys, values, mask=mask, causal=mask is None)
    if t == 1 and mask is None:
        # One token sees all keys, so a group's queries can pass as positions, and the cache is read once.
        shared = query.view(batch, groups, heads // groups, width)
        out = attend(shared, keys, values, mask=None, causal=False)  # (B, H / G, G * K)
        return out.unflatten(-1, (groups, width)).transpose(1, 2).reshape(batch, 1, heads * width)
    keys, values = (repeated(part, heads) for part in (keys, values))  # (B, H, S, K)
    return attend(query, keys, values, mask=mask, causal=mask is None)


def repeated(part: Tensor, heads: int) -> Tensor:
    """Return keys or values once for each query head: (B, G, S, K) -> (B, H, S, K)."""
    return part if part.shape[1] == heads else part.repeat_interleave(heads // part.shape[1], dim=1)
