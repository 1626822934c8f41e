"""What all layers of a network share in one pass, and the softmax attention of hybrids.

Shape letters: B batch, T time, D width.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from lexmill.models.common.decoder_attention import DecoderAttention
from lexmill.models.common.documents import document_positions
from lexmill.models.common.local_attention import Blocks, window_mask
from lexmill.models.common.rotary import Rotation, rotation
from lexmill.models.common.row_sizes import ROTARY, RowSizes


class Shared(NamedTuple):
    """What layers use in one pass: starts of documents, places within them, rotary angles, masks of two windows."""

    starts: Tensor | None  # (B, T) bool
    places: Tensor | None  # (B, T) int64
    rotation: Rotation | None
    mask: Tensor | Blocks | None  # of the last `context` positions
    near: Tensor | Blocks | None  # of the last `window` positions
    documents: Tensor | None  # (B, T) int64


def shared_parts(shape: RowSizes, tokens: Tensor, start: int, documents: Tensor | None) -> Shared:
    """Return what the layers of a shape need; see `mixer.Mixer.shared`."""
    time, device = tokens.shape[1], tokens.device
    places = None if documents is None else document_positions(documents)
    rotary, mask, near = None, None, None
    if set(shape.mixers) & set(ROTARY):
        absolute = torch.arange(start, start + time, device=device)
        rotary = rotation(absolute if places is None else places, shape.head_width, 10000.0)
    if "attention" in shape.mixers:
        mask = window_mask(tokens, start, shape.context, documents)
    if "local" in shape.mixers:
        near = window_mask(tokens, start, shape.window, documents)
    return Shared(None if places is None else places == 0, places, rotary, mask, near, documents)


class Attention(DecoderAttention):
    """Softmax attention over the last `context` tokens, rotary; so a text may have any length."""

    unlimited: ClassVar[bool] = True

    def __init__(self, shape: RowSizes, window: int = 0) -> None:
        super().__init__(shape.d_model, shape.n_head, shape.n_head, shape.head_width, window=window or shape.context)
        self.shape = shape

    def shared(self, tokens: Tensor, start: int, documents: Tensor | None) -> Shared:
        """Return what any layer needs."""
        return shared_parts(self.shape, tokens, start, documents)

    def forward(self, hidden: Tensor, shared: Shared, state: Any = None) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        return super().forward(hidden, (shared.rotation, shared.mask), state)


class Local(Attention):
    """The same over the last `window` tokens."""

    def __init__(self, shape: RowSizes) -> None:
        super().__init__(shape, shape.window)

    def forward(self, hidden: Tensor, shared: Shared, state: Any = None) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        return super().forward(hidden, shared._replace(mask=shared.near), state)
