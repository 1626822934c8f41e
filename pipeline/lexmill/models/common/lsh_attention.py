"""Attention within buckets of a locality-sensitive hash (Kitaev et al. 2020, Reformer), causal to the bit.

Queries and keys are one projection, the keys scaled to a mean square of 1. A position's bucket is the largest of its
products with a few random directions and their opposites. In each of several rounds of hashing a query sees the W - 1
nearest earlier positions of its bucket, and itself only if there are none. A round counts by its sum of exponentials.

The paper cuts the positions, sorted by bucket, into chunks, and a later token moves the bounds between them. Here the
window slides over the sorted positions, so no later token changes what an earlier one sees.

Cost: rounds * 2 * W scores a token in place of T, and a sort. With a cache a query meets all keys: decoding is O(S).

Shape letters: B batch, T queries, S keys, H heads, R rounds, K head width, N blocks, W window.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import rms_norm

from lexmill.models.common.local_attention import before, block_distances, blocks_of

_SELF = -1e5  # added to a query's score with itself; finite, so that a query alone in its bucket sees itself


def directions(width: int, n_bucket: int, rounds: int, generator: torch.Generator) -> Tensor:
    """Return the random directions of each round, (R, K, n_bucket / 2)."""
    return torch.randn(rounds, width, n_bucket // 2, generator=generator, device="cpu")


@torch.no_grad()
def buckets(vectors: Tensor, along: Tensor) -> Tensor:
    """Return each position's bucket in each round: (B, H, T, K) -> (B, H, R, T) int64."""
    products = torch.einsum("bhtk,rkn->bhrtn", vectors, along.to(vectors.dtype))
    return torch.cat([products, -products], dim=-1).argmax(-1)


def keys_of(vectors: Tensor) -> Tensor:
    """Return the keys of shared vectors: with a mean square of 1, over sqrt(K) for the scores."""
    return rms_norm(vectors, vectors.shape[-1:]) * vectors.shape[-1] ** -0.5


def attend_sorted(query: Tensor, key: Tensor, value: Tensor, numbers: Tensor, window: int) -> Tensor:
    """Return the attention of a whole text, (B, H, T, K).

    Args:
        query, key, value: (B, H, T, K), keys by `keys_of`.
        numbers: (B, H, R, T) int64, of the group that each position attends within: its bucket and document.
        window: W.
    """
    rounds, t = numbers.shape[2:]
    order = numbers.argsort(dim=-1, stable=True)  # (B, H, R, T)

    def in_order(part: Tensor) -> Tensor:
        """(B, H, T, K) -> (B, H * R, N, W, K)."""
        spread = part.unsqueeze(2).expand(-1, -1, rounds, -1, -1)
        found = spread.gather(3, order[..., None].expand(*order.shape, part.shape[-1]))
        return blocks_of(found.flatten(1, 2), -(-t // window), window)

    query, key, value = (in_order(part) for part in (query, key, value))
    # Numbers from 1, so that the padding's, 0, is nobody's.
    own = blocks_of(1 + numbers.gather(3, order).flatten(1, 2)[..., None], query.shape[2], window)
    key, value, theirs = (torch.cat([before(part), part], dim=3) for part in (key, value, own))
    apart = block_distances(window, query.device)
    seen = (apart >= 0) & (apart < window) & (own == theirs.transpose(3, 4))  # (B, H * R, N, W, 2 * W)
    scores = (query @ key.transpose(3, 4) + _SELF * (apart == 0)).masked_fill(~seen, -torch.inf)
    # A padded query sees itself alone; its row is cut off below.
    weight = scores.logsumexp(-1, keepdim=True)
    out = (scores - weight).exp() @ value
    back = order.argsort(dim=-1)[..., None]  # (B, H, R, T, 1)

    def as_it_was(part: Tensor) -> Tensor:
        """(B, H * R, N, W, X) -> (B, H, R, T, X)."""
        flat = part.flatten(2, 3)[:, :, :t].unflatten(1, (-1, rounds))
        return flat.gather(3, back.expand(*back.shape[:-1], part.shape[-1]))

    out, weight = as_it_was(out), as_it_was(weight)
    return (out * weight.softmax(dim=2)).sum(2)


def attend_cached(query: Tensor, key: Tensor, value: Tensor, numbers: Tensor, window: int) -> Tensor:
    """Return the same for the last T of S positions, by all T x S scores, (B, H, T, K).

    Args:
        query: (B, H, T, K).
        key, value: (B, H, S, K).
        numbers: (B, H, R, S) int64, as for `attend_sorted`.
        window: W.
    """
    t, s = query.shape[2], key.shape[2]
    apart = torch.arange(s - t, s, device=query.device)[:, None] - torch.arange(s, device=query.device)  # (T, S)
    same = (numbers[..., s - t :, None] == numbers[..., None, :]) & (apart >= 0)  # (B, H, R, T, S)
    from_here = same.flip(-1).cumsum(-1).flip(-1)  # positions of the group from a key up to the query
    scores = (query @ key.transpose(2, 3) + _SELF * (apart == 0))[:, :, None]
    scores = scores.masked_fill(~(same & (from_here <= window)), -torch.inf)
    weight = scores.logsumexp(-1, keepdim=True)  # (B, H, R, T, 1)
    out = (scores - weight).exp() @ value[:, :, None]
    return (out * weight.softmax(dim=2)).sum(2)
