"""Products of a chunk's queries, keys and values whose pairs decay by exp(b_i - b_j), a vector of logs a position.

Written as (q_i exp(b_i)) (k_j exp(-b_j)) the second factor overflows. Here a chunk is a tree of halves: queries of a
second half meet keys of the first with the boundary between them as reference, so no exponent is above 0, whatever the
decay. log2(C) levels, each with one exponential for half of the queries and half of the keys.

Shape letters: C positions of a chunk (a power of two), K width; ... any leading dimensions.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad


def scores(query: Tensor, key: Tensor, decays: Tensor, reading: Tensor, own: Tensor) -> Tensor:
    """Return sum over K of q_i k_j exp(reading_i - decays_j) for j < i, `own` on the diagonal: (..., C, C), lower.

    Args:
        query, key: (..., C, K).
        decays: (..., C, K), the running sum of the logs, position by position.
        reading: (..., C, K), the same up to the state that the query reads.
        own: (..., C), the score of a position with itself.
    """
    found = own[..., None, None]  # (..., C / s, s, s)
    for size in _sizes(query):
        (first_key, _), (_, second_query) = _halves(key, size), _halves(query, size)
        (first, _), (_, second) = _halves(decays, size), _halves(reading, size)
        border = first[..., -1:, :]
        cross = (second_query * (second - border).exp()) @ (first_key * (border - first).exp()).mT  # (..., s, s)
        upper, lower = found.unflatten(-3, (-1, 2)).unbind(-3)
        found = torch.cat([pad(upper, (0, size)), torch.cat([cross, lower], -1)], -2)
    return found.squeeze(-3)


def mixed(weights: Tensor, value: Tensor, decays: Tensor) -> Tensor:
    """Return sum over j <= i of weights_ij v_j exp(decays_i - decays_j): (..., C, C), (..., C, V) -> (..., C, V)."""
    found = weights.diagonal(dim1=-2, dim2=-1)[..., None] * value
    for size in _sizes(value):
        (first_value, _), (first, second) = _halves(value, size), _halves(decays, size)
        border = first[..., -1:, :]
        blocks = weights.unflatten(-1, (-1, 2, size)).unflatten(-4, (-1, 2, size))  # (..., C/2s, 2, s, C/2s, 2, s)
        cross = blocks[..., 1, :, :, 0, :].diagonal(dim1=-4, dim2=-2).movedim(-1, -3)  # (..., C/2s, s, s)
        added = (second - border).exp() * (cross @ (first_value * (border - first).exp()))
        upper, lower = _halves(found, size)
        found = torch.stack([upper, lower + added], -3).flatten(-4, -2)
    return found


def _sizes(rows: Tensor) -> list[int]:
    """Return 1, 2, 4 and so on, the halves' sizes."""
    return [1 << level for level in range(rows.shape[-2].bit_length() - 1)]


def _halves(rows: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Cut (..., C, K) into pairs of neighbouring blocks: (..., C / 2s, s, K) each."""
    first, second = rows.unflatten(-2, (-1, 2, size)).unbind(-3)
    return first, second
