"""What all layers of a network share in one pass, and the softmax attention of hybrids.

Shape letters: B batch, T time, D width.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lexmill.models.common.documents import document_positions
from lexmill.models.common.rotary import Rotation, rotation
from lexmill.models.common.windowed_attention import WindowCache, WindowedAttention, window_mask
from lexmill.models.linear_attention.shape import ROTARY, Shape


class Shared(NamedTuple):
    """What layers use in one pass: starts of documents, places within them, rotary angles, attention's mask."""

    starts: Tensor | None  # (B, T) bool
    places: Tensor | None  # (B, T) int64
    rotation: Rotation | None
    mask: Tensor | None


def shared_parts(shape: Shape, tokens: Tensor, start: int, documents: Tensor | None) -> Shared:
    """Return what the layers of a shape need; see `mixer.Mixer.shared`."""
    time, device = tokens.shape[1], tokens.device
    places = None if documents is None else document_positions(documents)
    rotary, mask = None, None
    if set(shape.mixers) & set(ROTARY):
        absolute = torch.arange(start, start + time, device=device)
        rotary = rotation(absolute if places is None else places, shape.head_width, 10000.0)
    if "attention" in shape.mixers:
        mask = window_mask(time, start, shape.context, documents, device)
    return Shared(None if places is None else places == 0, places, rotary, mask)


class Attention(WindowedAttention):
    """Softmax attention over the last `context` tokens, rotary."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape.d_model, shape.n_head, shape.head_width, shape.context)
        self.shape = shape

    def shared(self, tokens: Tensor, start: int, documents: Tensor | None) -> Shared:  # type: ignore[override]
        """Return what any layer needs."""
        return shared_parts(self.shape, tokens, start, documents)

    def forward(self, hidden: Tensor, shared: Shared, state: WindowCache | None = None) -> Tensor:  # type: ignore[override]
        """(B, T, D) -> (B, T, D)."""
        return super().forward(hidden, (shared.rotation, shared.mask), state)  # type: ignore[arg-type]
