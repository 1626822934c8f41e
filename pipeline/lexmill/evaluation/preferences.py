"""Which of two answers a model prefers."""

from __future__ import annotations


def preferred(chosen: float, rejected: float) -> float:
    """Return whether the chosen answer has the higher score: 1 or 0, a half where both have the same."""
    return float(chosen > rejected) + 0.5 * (chosen == rejected)
