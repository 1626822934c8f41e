"""The running maximum of exponential gates, m_t = max(log f_t + m_{t-1}, log i_t) (Beck et al. 2024).

Relative to exp(m_t) a state decays by exp(log f_t + m_{t-1} - m_t) and written by exp(log i_t - m_t), at most 1 each.
The maximum carries no gradient: what is read does not depend on it. Cost: log2(T) passes over (B, H, T).

Shape letters: B batch, H heads, T time.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import pad


def running_max(forget: Tensor, write: Tensor, before: Tensor | None, starts: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return m_t and the relative decay's log, (B, H, T, 1) each; the decay is 0 where nothing came before.

    Args:
        forget, write: log f and log i, (B, H, T, 1).
        before: m before the first token, (B, H, 1, 1); None: nothing came before.
        starts: (B, T) bool, where a document starts; None: nowhere.
    """
    fresh = torch.zeros_like(forget, dtype=torch.bool) if starts is None else starts[:, None, :, None]
    if before is None:
        before = torch.zeros_like(forget[:, :, :1])
        fresh = torch.cat([torch.ones_like(fresh[:, :, :1]), fresh[:, :, 1:]], 2)
    slope, highest = forget.detach().masked_fill(fresh, -math.inf), write.detach()
    shift = 1
    while shift < forget.shape[2]:  # each pass doubles how many tokens a place has seen
        highest = torch.maximum(highest, slope + _earlier(highest, shift, -math.inf))
        slope = slope + _earlier(slope, shift, 0.0)
        shift *= 2
    highest = torch.maximum(highest, slope + before)
    decay = forget + torch.cat([before, highest[:, :, :-1]], 2) - highest
    return highest, decay.masked_fill(fresh, 0.0)


def _earlier(part: Tensor, shift: int, first: float) -> Tensor:
    return pad(part[:, :, :-shift], (0, 0, shift, 0), value=first)
