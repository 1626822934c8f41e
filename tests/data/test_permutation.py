"""The data order: a bijection for every n, spread evenly, another one for each seed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lexmill.data.permutation import fold, permute

SEEDS = st.integers(0, 2**64 - 1)


@given(n=st.integers(1, 3000), seed=SEEDS)
@settings(max_examples=60, deadline=None)
def test_each_item_comes_exactly_once(n, seed):
    order = permute(np.arange(n), n, seed)
    assert sorted(order.tolist()) == list(range(n))


@given(n=st.integers(1, 2**62), seed=SEEDS, data=st.data())
@settings(max_examples=60, deadline=None)
def test_one_position_alone_gives_what_it_gives_among_others(n, seed, data):
    positions = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=8, unique=True))
    together = permute(np.array(positions), n, seed)
    assert together.tolist() == [permute(position, n, seed) for position in positions]
    assert len(set(together.tolist())) == len(positions)
    assert all(0 <= item < n for item in together.tolist())


def test_the_order_is_the_same_on_every_machine():
    assert permute(np.arange(10), 10, 1).tolist() == [6, 9, 5, 1, 2, 8, 0, 4, 7, 3]


@pytest.mark.parametrize("n", [5, 16, 17])
def test_items_are_spread_evenly_over_positions(n):
    seeds = 600
    counts = np.zeros((n, n))
    for seed in range(seeds):
        counts[np.arange(n), permute(np.arange(n), n, seed)] += 1
    # Chi-squared of (n-1)^2 degrees of freedom: mean (n-1)^2, deviation sqrt(2) (n-1).
    expected = seeds / n
    chi_squared = ((counts - expected) ** 2 / expected).sum()
    assert abs(chi_squared - (n - 1) ** 2) < 5 * np.sqrt(2) * (n - 1)


def test_neighbours_do_not_stay_neighbours():
    n = 10_000
    order = permute(np.arange(n), n, 7)
    correlation = np.corrcoef(order[:-1], order[1:])[0, 1]
    assert abs(correlation) < 0.05
    assert (np.abs(np.diff(order)) == 1).sum() < 20


def test_epochs_and_seeds_have_different_orders():
    orders = {tuple(permute(np.arange(50), 50, fold(seed, "epoch", e)).tolist()) for seed in (0, 1) for e in range(20)}
    assert len(orders) == 40


def test_fold_tells_numbers_from_text_and_keeps_parts_apart():
    seeds = {fold(1, 1), fold(1, "1"), fold(11), fold(1, "1", 1), fold(1, "11"), fold(1, 11)}
    assert len(seeds) == 6


@pytest.mark.parametrize(("index", "n"), [(-1, 5), (5, 5), (0, 0), (0, 2**62 + 1)])
def test_positions_out_of_range_are_refused(index, n):
    with pytest.raises(ValueError, match="must be"):
        permute(index, n, 0)


def test_an_empty_array_gives_an_empty_array():
    assert permute(np.arange(0), 5, 0).shape == (0,)
