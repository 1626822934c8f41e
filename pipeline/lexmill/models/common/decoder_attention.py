"""Causal attention with every option: grouped queries, five kinds of positions, a window, normed queries and keys.

Positions are rotations of queries and keys, or a bias on the scores that depends on the distance, or nothing (those
that an embedding adds are the skeleton's). In a window of w, a query sees itself and the w - 1 positions before it
(Beltagy et al. 2020). Normed queries and keys (Dehghani et al. 2023) have a mean square of 1 before the rotation.
Cost: 2 * D * K * (H + G) multiply-adds a token for the projections, 2 * S * K * H for the rest; the window is a mask,
so what it hides is computed too.

Shape letters: B batch, T queries, S keys, D width, H query heads, G key and value heads, K head width.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import rms_norm, scaled_dot_product_attention

from lexmill.models.common.attention import KeyValueCache
from lexmill.models.common.causal_attention import CausalAttention
from lexmill.models.common.documents import document_positions
from lexmill.models.common.mixer import Split
from lexmill.models.common.position_bias import RelativeBias, alibi_slopes, distances
from lexmill.models.common.rotary import Rotation, rotate, rotation

Positions = Literal["none", "sinusoidal", "learned", "rotary", "alibi", "relative"]


class Shared(NamedTuple):
    """What all layers use in one pass.

    Attributes:
        by: the positions' rotation, or None.
        scores: what is added to the scores, broadcastable to (B, H, T, S), -inf where a query may not attend; None:
            causal attention alone.
    """

    by: Rotation | None
    scores: Tensor | None


class DecoderAttention(CausalAttention):
    """Causal attention of a sequence over itself.

    Args:
        positions: the kind; `relative` needs `relative`.
        window: positions that a query sees, itself included; 0: all.
        qk_norm: norm queries and keys, each head by itself.
        bias: of the four projections.
        relative: the bias by distance, one module for all layers.
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
        super().__init__()
        self.n_head, self.d_head, self.theta = n_head, d_head, theta
        self.positions, self.window, self.qk_norm = positions, window, qk_norm
        self.query = nn.Linear(d_model, n_head * d_head, bias=bias)
        self.key = nn.Linear(d_model, n_kv_head * d_head, bias=bias)
        self.value = nn.Linear(d_model, n_kv_head * d_head, bias=bias)
        self.output = nn.Linear(n_head * d_head, d_model, bias=bias)
        self.relative = relative

    def shared(self, tokens: Tensor, start: int, documents: Tensor | None) -> Shared:
        """Return the positions' rotation, and what is added to the scores."""
        t = tokens.shape[1]
        by = None
        if self.positions == "rotary":
            places = (
                torch.arange(start, start + t, device=tokens.device)
                if documents is None
                else document_positions(documents)
            )
            by = rotation(places, self.d_head, self.theta)
        return Shared(by, self._scores(t, start + t, documents, tokens.device))

    def _scores(self, t: int, s: int, documents: Tensor | None, device: torch.device) -> Tensor | None:
        biased = self.positions in ("alibi", "relative")
        if not biased and documents is None and not 0 < self.window < s:
            return None
        apart = distances(t, s, device)  # (T, S)
        scores = torch.zeros(1, 1, t, s, device=device)
        if self.positions == "alibi":
            scores = scores - alibi_slopes(self.n_head).to(device)[:, None, None] * apart
        elif self.relative is not None:
            scores = scores + self.relative(apart)
        seen = (apart >= 0) & (apart < (self.window or s))
        if documents is not None:
            seen = seen & (documents[:, None, :, None] == documents[:, None, None, :])
        return scores.masked_fill(~seen, -torch.inf)

    def forward(self, hidden: Tensor, shared: Shared, state: KeyValueCache | None = None) -> Tensor:
        """(B, T, D) -> (B, T, D); with a state the queries are the last T of its length + T positions."""
        query, keys, values = (
            linear(hidden).unflatten(-1, (-1, self.d_head)) for linear in (self.query, self.key, self.value)
        )  # (B, T, H or G, K)
        if self.qk_norm:
            query, keys = (rms_norm(part, (self.d_head,)) for part in (query, keys))
        if shared.by is not None:
            query, keys = rotate(query, shared.by), rotate(keys, shared.by)
        query, keys, values = (part.transpose(1, 2) for part in (query, keys, values))  # (B, H or G, T, K)
        if state is not None:
            keys, values = state.append(keys, values)
        groups = query.shape[1] // keys.shape[1]
        if groups > 1:
            keys, values = (part.repeat_interleave(groups, dim=1) for part in (keys, values))
        t, s = query.shape[2], keys.shape[2]
        scores = shared.scores
        if scores is None and 1 < t < s:  # torch's causal mask is for T = S
            scores = torch.zeros(t, s, device=hidden.device).masked_fill_(
                distances(t, s, hidden.device) < 0, -torch.inf
            )
        if scores is not None:
            scores = scores.to(query.dtype)
        out = scaled_dot_product_attention(query, keys, values, attn_mask=scores, is_causal=scores is None and t > 1)
        mixed: Tensor = self.output(out.transpose(1, 2).flatten(2))
        return mixed

    def split(self) -> Split | None:
        """Split by heads; not where a bias differs from head to head."""
        if self.positions in ("alibi", "relative"):
            return None
        return {"query": "columns", "key": "columns", "value": "columns", "output": "rows"}
