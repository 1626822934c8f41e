"""The random features of FAVOR+ (Choromanski et al. 2021): phi(q) . phi(k) is exp(q . k / sqrt(K)) on average.

phi(x) = exp(W y - |y|^2 / 2), y = x / K^(1/4), with orthogonal random rows in W.

Shape letters: B batch, H heads, T time, K head width, M features.
"""

from __future__ import annotations

import torch
from torch import Tensor

LEAST = 1e-6  # added to each feature, so that a query far from all keys reads their mean


def log_features(rows: Tensor, features: Tensor) -> Tensor:
    """Return the logs of phi: (B, H, T, K) and W (M, K) -> (B, H, T, M)."""
    rows = rows * rows.shape[-1] ** -0.25
    return rows @ features.T.to(rows.dtype) - rows.square().sum(-1, keepdim=True) / 2


def orthogonal_features(count: int, width: int, generator: torch.Generator) -> Tensor:
    """Return random rows, (count, width), orthogonal in groups of `width`, as long as those of a normal matrix."""
    blocks = []
    for _ in range(-(-count // width)):
        basis, upper = torch.linalg.qr(torch.randn(width, width, generator=generator, device="cpu"))
        blocks.append((basis * upper.diagonal().sign()).T)  # by the signs every direction is as likely as any other
    lengths = torch.randn(count, width, generator=generator, device="cpu").norm(dim=1, keepdim=True)
    return torch.cat(blocks)[:count] * lengths
