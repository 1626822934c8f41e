"""Grouped-query attention with every option: five kinds of positions, a window, normed queries and keys.

Positions are rotations of queries and keys, or a bias on the scores that depends on the distance, or nothing (those
that an embedding adds are the network's). In a window of w, a query sees itself and the w - 1 positions before it
(Beltagy et al. 2020). Normed queries and keys (Dehghani et al. 2023) have a mean square of 1 before the rotation.
Cost: as of `GroupedAttention`; the window is a mask, so what it hides is computed too.

Shape letters: B batch, T queries, S keys, D width, H query heads, G key and value heads, K head width.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import rms_norm

from lexmill.models.common.documents import document_mask
from lexmill.models.common.grouped_attention import GroupedAttention
from lexmill.models.common.mixer import Split
from lexmill.models.common.position_bias import RelativeBias, alibi_slopes, distances
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

    def shared(self, tokens: Tensor, start: int, documents: Tensor | None) -> tuple[Rotation | None, Tensor | None]:
        """Return the positions' rotation, and which keys a query may see or what is added to the scores."""
        by = self._rotation(tokens, start, documents) if self.positions == "rotary" else None
        return by, self._mask(tokens.shape[1], start + tokens.shape[1], documents, tokens.device)

    def _mask(self, t: int, s: int, documents: Tensor | None, device: torch.device) -> Tensor | None:
        """Return None (causal), or (1 or B, 1 or H, T, S): what a query may see, or the bias, -inf where it may not."""
        biased = self.positions in ("alibi", "relative")
        if not biased and not 0 < self.window < s:
            return None if documents is None else document_mask(documents)
        apart = distances(t, s, device)  # (T, S)
        seen = ((apart >= 0) & (apart < (self.window or s)))[None, None]
        if documents is not None:
            seen = seen & document_mask(documents)
        if not biased:
            return seen
        bias = (
            -alibi_slopes(self.n_head).to(device)[:, None, None] * apart
            if self.relative is None
            else self.relative(apart)
        )
        return bias[None].masked_fill(~seen, -torch.inf)

    def _placed(self, heads: Tensor, by: Rotation | None) -> Tensor:
        return super()._placed(rms_norm(heads, (self.d_head,)) if self.qk_norm else heads, by)

    def split(self) -> Split | None:
        """Split by heads; not where a bias differs from head to head."""
        return None if self.positions in ("alibi", "relative") else super().split()
