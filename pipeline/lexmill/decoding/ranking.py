"""The largest scores of each row, equal ones in the order of their index.

`torch.topk` picks any of equal values, so that a search may change its answer from run to run.
Shape letters: B rows, N candidates, K kept.
"""

from __future__ import annotations

from torch import Tensor


def largest(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of each row of (B, N) and their indices, (B, K) each with K = min(count, N).

    In descending order; of equal values the one with the lower index is kept and comes first.
    """
    size = values.size(1)
    count = min(count, size)
    if count == 1:
        best = values.argmax(dim=1, keepdim=True)  # the first of equal ones
        return values.gather(1, best), best
    found, index = values.topk(min(count + 1, size), dim=1)
    if size > count:
        # Where the first dropped value equals the last kept one, topk chose arbitrarily.
        tied = (found[:, count - 1] == found[:, count]).nonzero().flatten()
        found, index = found[:, :count], index[:, :count]
        if len(tied):
            found, index = found.clone(), index.clone()
            exact = values[tied].sort(dim=1, descending=True, stable=True)
            found[tied], index[tied] = exact.values[:, :count], exact.indices[:, :count]
    # Order equal values by index: sort by index, then stably by value.
    index, order = index.sort(dim=1)
    found, order = found.gather(1, order).sort(dim=1, descending=True, stable=True)
    return found, index.gather(1, order)
