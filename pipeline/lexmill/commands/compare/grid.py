"""The grid of learning rates of one model: the preset's times a factor's powers, chosen by validation loss alone.

Powers 0 and 1 are tried first. While the best one lies at an end, one more beyond it is, up to `MOST` in all.
Where none has trained, one more below them is tried, up to `LEAST`.
"""

from __future__ import annotations

from collections.abc import Mapping

POWERS = (0, 1)
LEAST, MOST = 3, 6

Losses = Mapping[int, float | None]  # by power; None: the training failed, or the rate is out of bounds


def next_power(losses: Losses) -> int | None:
    """Return the power to be tried next; None if the grid is done."""
    for power in POWERS:
        if power not in losses:
            return power
    found = best(losses)
    if found is None:
        return min(losses) - 1 if len(losses) < LEAST else None
    if len(losses) >= MOST or not at_edge(losses):
        return None
    return found + (1 if found == max(losses) else -1)


def best(losses: Losses) -> int | None:
    """Return the power with the lowest loss, of equal ones the lowest power; None if all failed."""
    known = [(loss, power) for power, loss in losses.items() if loss is not None]
    return min(known)[1] if known else None


def at_edge(losses: Losses) -> bool:
    """Return whether the best power is the lowest or highest that was tried, so that a better one may lie beyond."""
    return best(losses) in (min(losses), max(losses))
