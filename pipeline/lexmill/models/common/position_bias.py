"""Positions that attention sees: biases added to the scores, and the sinusoids that an embedding adds.

Shape letters: T queries, S keys, H heads, D width.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

_BUCKETS = 32
_FARTHEST = 128  # positions; beyond, all distances share the last bucket


def sinusoids(places: Tensor, width: int) -> Tensor:
    """Return the sines and cosines of Vaswani et al. 2017: (...) int64 -> (..., D) float32.

    Dimensions 2i and 2i + 1 are the sine and cosine of place / 10000^(2i/D).
    """
    rates = torch.exp(torch.arange(0, width, 2, device=places.device) * (-math.log(10000.0) / width))
    angles = places.float()[..., None] * rates  # (..., D/2)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)[..., :width]


def alibi_slopes(n_head: int) -> Tensor:
    """Return ALiBi's slope of each head, (H,) (Press et al. 2022): 2^(-8/n), 2^(-16/n), ... for n a power of two.

    For other numbers, the slopes of the next smaller power, then every second one of twice that power, as in the paper.
    """
    power = 2 ** math.floor(math.log2(n_head))
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    slopes += [2 ** (-4 * (2 * i + 1) / power) for i in range(n_head - power)]
    return torch.tensor(slopes)


def distances(t: int, s: int, device: torch.device) -> Tensor:
    """Return how many positions before each query each key is: (T, S) int64; the queries are the last T of S."""
    keys = torch.arange(s, device=device)
    return keys[s - t :, None] - keys


class RelativeBias(nn.Module):
    """A learned bias for each head and bucket of distances (Raffel et al. 2020, T5), for all layers.

    Half of the buckets hold one distance each, the others ranges that grow by a constant factor up to 128.

    Args:
        both_sides: keys ahead have buckets of their own, as many as those behind; otherwise they count as at 0.
    """

    def __init__(self, n_head: int, both_sides: bool = False) -> None:
        super().__init__()
        self.table = nn.Embedding(_BUCKETS, n_head)
        self.both_sides = both_sides

    def forward(self, offsets: Tensor) -> Tensor:
        """Return the bias of these distances: (T, S) int64 -> (H, T, S)."""
        out: Tensor = self.table(buckets(offsets, self.both_sides)).permute(2, 0, 1)
        return out


def buckets(offsets: Tensor, both_sides: bool = False) -> Tensor:
    """Return T5's bucket of each distance to an earlier key, as its decoder has them or, on both sides, its encoder."""
    count = _BUCKETS // 2 if both_sides else _BUCKETS
    exact = count // 2
    first = count * (offsets < 0) if both_sides else 0
    offsets = offsets.abs() if both_sides else offsets.clamp_min(0)
    ratio = torch.log(offsets.clamp_min(1).float() / exact) / math.log(_FARTHEST / exact)
    far = (exact + (ratio * (count - exact)).long()).clamp_max(count - 1)
    return first + torch.where(offsets < exact, offsets, far)
