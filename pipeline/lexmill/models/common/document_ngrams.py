"""How often a document has had its last few tokens before, and what followed them.

Position t of a document has the tokens up to and with t behind it and predicts t + 1. Its context of order k is its
last k - 1 tokens.

Shape letters: N targets, P positions, K the largest order, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor


def of_targets(stream: Tensor, order: int) -> tuple[Tensor, Tensor]:
    """Return c(h_k w) / c(h_k) of each target w, (N, K) float64, 0 where h_k is new, and the longest k whose is not.

    Args:
        stream: (N + 1,) int64; all but the first are targets. Cost: 2 K sorts.
    """
    targets, symbols = len(stream) - 1, int(stream.max()) + 1
    shares = torch.zeros(targets, order, dtype=torch.float64, device=stream.device)
    longest, context = (torch.zeros(targets, dtype=torch.int64, device=stream.device) for _ in range(2))
    for k in range(1, order + 1):
        if k > 1:
            # The token k - 1 before the target, where there is one; -1 makes the first contexts unlike all others.
            token = stream.new_full((targets,), -1)
            token[k - 2 :] = stream[: max(0, targets - k + 2)]
            context = _numbered(context * (symbols + 1) + token + 1)
        before = _earlier(context)
        before[: max(0, k - 2)] = 0
        with_target = _earlier(_numbered(context * symbols + stream[1:]))
        seen = before > 0
        shares[seen, k - 1] = with_target[seen].double() / before[seen].double()
        longest[seen] = k
    return shares, longest


def distributions(stream: Tensor, positions: int, order: int, vocab_size: int) -> tuple[Tensor, Tensor]:
    """Return c(h_k w) / c(h_k) of all tokens w after the last positions, (P, K, V) float64, and the longest k, (P,).

    Args:
        stream: the document so far, at least `positions` tokens.
    """
    length = len(stream)
    at = torch.arange(length - positions, length, device=stream.device)  # (P,)
    earlier = torch.arange(length - 1, device=stream.device)  # positions whose next token is known
    alike = earlier < at[:, None]  # (P, length - 1)
    shares = torch.zeros(positions, order, vocab_size, dtype=torch.float64, device=stream.device)
    longest = torch.zeros(positions, dtype=torch.int64, device=stream.device)
    for k in range(1, order + 1):
        if k > 1:
            # The token k - 2 before each position; one before the start, -1, is like no other.
            token = torch.cat([stream.new_full((k - 2,), -1), stream])[:length]  # (length,)
            alike = alike & (token[earlier] == token[at][:, None]) & (token[at] >= 0)[:, None]
        count = alike.sum(dim=1)
        seen = count > 0
        row, place = alike.nonzero(as_tuple=True)
        shares[:, k - 1].index_put_((row, stream[place + 1]), 1 / count[row].double(), accumulate=True)
        longest[seen] = k
    return shares, longest


def _numbered(values: Tensor) -> Tensor:
    """Return the number of each value among the different ones."""
    found: Tensor = torch.unique(values, return_inverse=True)[1]
    return found


def _earlier(values: Tensor) -> Tensor:
    """Return how many equal values come before each."""
    order = torch.argsort(values, stable=True)
    at = torch.arange(len(values), device=values.device)
    ordered = values[order]
    begins = torch.ones_like(ordered, dtype=torch.bool)
    begins[1:] = ordered[1:] != ordered[:-1]
    first = torch.cummax(torch.where(begins, at, 0), dim=0).values
    found = torch.empty_like(at)
    found[order] = at - first
    return found
