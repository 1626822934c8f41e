"""Rotary positions (Su et al. 2021): queries and keys are rotated by an angle that grows with position.

Dimension i of a head's first half and dimension i of its second half form a pair, rotated by position * theta^(-2i/K):
the layout of Llama's weights in Hugging Face format. The product of a query and a key then depends on their distance
alone. Nothing is learned or stored: each forward pass computes the angles once for all layers, in float32.

Shape letters: B batch, T time, H heads, K head width.
"""

from __future__ import annotations

import torch
from torch import Tensor

Rotation = tuple[Tensor, Tensor]


def rotation(positions: Tensor, d_head: int, theta: float) -> Rotation:
    """Return cosines and sines of all angles: (T,) or (B, T) int64 -> (1 or B, T, 1, K/2) float32 each."""
    exponents = torch.arange(0, d_head, 2, dtype=torch.float32, device=positions.device) / d_head  # (K/2,)
    angles = positions.float()[..., None] * theta**-exponents  # (..., T, K/2)
    angles = angles.reshape(-1, positions.shape[-1], 1, d_head // 2)
    return angles.cos(), angles.sin()


def rotate(heads: Tensor, by: Rotation) -> Tensor:
    """Rotate queries or keys: (B, T, H, K) -> (B, T, H, K), in their own precision."""
    cosine, sine = (part.to(heads.dtype) for part in by)
    first, second = heads.chunk(2, dim=-1)  # (B, T, H, K/2) each
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)
