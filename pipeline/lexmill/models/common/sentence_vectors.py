"""One vector for a text, so that texts of like meaning lie close together.

Shape letters: B texts, T tokens, D width.
"""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn
from torch.nn.functional import normalize

from lexmill.models.common.text_encoder import TextEncoder


class SentenceVectors(nn.Module):
    """An encoder and the mean of its states over the real tokens, of length 1 (Reimers and Gurevych 2019).

    Args:
        encoder: a `TextEncoder`.
    """

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    @property
    def max_positions(self) -> int:
        """The longest text, in tokens."""
        return cast(TextEncoder, self.encoder).max_positions

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return vectors (B, D) in float32 of token ids (B, T) and a mask (B, T), true at real tokens."""
        hidden = cast(TextEncoder, self.encoder).hidden(tokens, mask).float()  # (B, T, D)
        real = mask.unsqueeze(-1).to(hidden.dtype)
        return normalize((hidden * real).sum(dim=1) / real.sum(dim=1).clamp(min=1), dim=1)
