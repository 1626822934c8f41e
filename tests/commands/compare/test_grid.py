"""The grid of rates: two, and more beyond an edge; hand-worked."""

from __future__ import annotations

import pytest

from lexmill.commands.compare import grid


def walk(losses: dict[int, float | None]) -> list[int]:
    """The powers in the order in which they are tried, with these results."""
    tried: dict[int, float | None] = {}
    while (power := grid.next_power(tried)) is not None:
        tried[power] = losses[power]
    return list(tried)


@pytest.mark.parametrize(
    ("losses", "tried", "best", "edge"),
    [
        ({0: 2.0, 1: 2.5, -1: 3.0}, [0, 1, -1], 0, False),
        ({0: 2.0, 1: 1.0, 2: 1.5}, [0, 1, 2], 1, False),
        ({0: 2.0, 1: 1.0, 2: 0.5, 3: 0.7}, [0, 1, 2, 3], 2, False),
        ({0: 2.0, 1: 1.0, 2: 0.5, 3: 0.4, 4: 0.3, 5: 0.2}, [0, 1, 2, 3, 4, 5], 5, True),
        ({0: 2.0, 1: 3.0, -1: 1.0, -2: 0.5, -3: None}, [0, 1, -1, -2, -3], -2, False),
        ({0: 2.0, 1: 3.0, -1: 1.0, -2: 1.0, -3: 1.5}, [0, 1, -1, -2, -3], -2, False),  # of equal ones the lowest
        ({0: 2.0, 1: None, -1: 3.0}, [0, 1, -1], 0, False),  # a failed one is an end too
        ({0: None, 1: 2.0, 2: None}, [0, 1, 2], 1, False),
        ({0: None, 1: None, -1: 2.0, -2: 3.0}, [0, 1, -1, -2], -1, False),
        ({0: None, 1: None, -1: None}, [0, 1, -1], None, False),
    ],
)
def test_the_best_rate_has_a_worse_one_on_both_sides_if_six_rates_show_it(
    losses: dict[int, float | None], tried: list[int], best: int | None, edge: bool
) -> None:
    assert walk(losses) == tried
    assert grid.best(losses) == best
    assert (best is not None and grid.at_edge(losses)) is edge
