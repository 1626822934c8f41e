"""Known tokens, subsampling, negatives and the pairs of an epoch, beside plain loops and by hand."""

from __future__ import annotations

from unittest.mock import MagicMock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lexmill.kinds.word_vectors.pairs import EpochPairs, KnownTokens, Negatives, generator, keep_probabilities
from tests.kinds.word_vectors.made_text import FIRST, known

DOCUMENTS = st.lists(st.lists(st.integers(-1, 4), max_size=12), min_size=1, max_size=5)


def all_pairs(pairs: EpochPairs) -> list[tuple[int, int]]:
    centres, contexts = pairs.at(np.arange(len(pairs)))
    return list(zip(centres.tolist(), contexts.tolist(), strict=True))


def slow(text: KnownTokens, keep: np.ndarray, window: int, random: np.random.Generator) -> list[tuple[int, int]]:
    """Every centre with every context that it reaches, one after the other."""
    kept = [i for i, draw in enumerate(random.random(len(text.tokens))) if draw < keep[text.tokens[i]]]
    tokens, document = ([int(array[i]) for i in kept] for array in (text.tokens, text.document))
    found = []
    for centre, reach in enumerate(random.integers(1, window + 1, len(kept))):
        for context in range(centre - reach, centre + reach + 1):
            if context != centre and 0 <= context < len(kept) and document[context] == document[centre]:
                found.append((tokens[centre], tokens[context]))
    return found


def test_unknown_and_special_tokens_are_left_out_before_anything_is_counted() -> None:
    text = known([0, -1, 1], [-1], [2, 2])
    assert text.tokens.tolist() == [FIRST, FIRST + 1, FIRST + 2, FIRST + 2]
    assert text.document.tolist() == [0, 0, 2, 2]
    assert text.counts[FIRST:].tolist() == [1, 1, 2, 0, 0, 0, 0, 0, 0]
    assert text.counts[:FIRST].sum() == 0
    assert text.has_pairs
    assert not known([0], [-1, 1], []).has_pairs


def test_pairs_of_a_window_of_one_by_hand() -> None:
    text = known([0, -1, 1, 2], [3, 4])
    found = all_pairs(EpochPairs(text, np.ones(99), 1, generator(0)))
    words = [(centre - FIRST, context - FIRST) for centre, context in found]
    assert words == [(0, 1), (1, 0), (1, 2), (2, 1), (3, 4), (4, 3)]


@settings(deadline=None, max_examples=60)
@given(documents=DOCUMENTS, window=st.integers(1, 15), seed=st.integers(0, 99), threshold=st.floats(0.01, 1))
def test_pairs_are_those_of_a_loop(documents: list[list[int]], window: int, seed: int, threshold: float) -> None:
    text = known(*documents)
    keep = keep_probabilities(text.counts, threshold)
    found = EpochPairs(text, keep, window, generator(seed))
    assert all_pairs(found) == slow(text, keep, window, generator(seed))


def test_how_often_a_distance_is_drawn() -> None:
    """A context at distance d of a window w with probability (w - d + 1) / w."""
    text = known(list(range(9)) * 3000)
    found = EpochPairs(text, np.ones(99), 3, generator(4))
    centres, contexts = found.at(np.arange(len(found)))
    distance = np.abs(centres - contexts)  # 0 ... 8 go round: at most 3 apart, or 6 and more
    share = [np.minimum(distance, 9 - distance).tolist().count(d) / (2 * len(text.tokens)) for d in (1, 2, 3)]
    assert share == pytest.approx([1, 2 / 3, 1 / 3], abs=0.01)


def test_the_probability_to_keep_a_token_by_hand() -> None:
    keep = keep_probabilities(np.array([900, 90, 10, 0]), 0.01)
    assert keep.tolist() == pytest.approx([0.1054093, 1 / 3, 1, 1])  # (0.01 / 0.9) ** 0.5
    assert keep_probabilities(np.array([900, 100]), 1.0).tolist() == [1, 1]


def test_frequent_tokens_are_left_out_that_often() -> None:
    text = known(([0] * 9 + [1]) * 4000)
    found = EpochPairs(text, keep_probabilities(text.counts, 0.1), 1, generator(1))
    kept = len(found) / 2 + 1  # of a window of one
    assert kept == pytest.approx(36000 / 3 + 4000, rel=0.02)


def test_negatives_are_drawn_by_counts_to_the_power_three_quarters() -> None:
    counts = np.array([0, 16, 0, 1, 81, 0])
    drawn = Negatives(counts).draw(generator(3), (20000, 5))
    assert drawn.shape == (20000, 5)
    share = np.bincount(drawn.ravel(), minlength=6) / drawn.size
    assert share.tolist() == pytest.approx([0, 8 / 36, 0, 1 / 36, 27 / 36, 0], abs=0.005)
    assert share[[0, 2, 5]].sum() == 0


def test_the_ends_of_the_unit_interval_draw_a_token_that_occurs() -> None:
    ends = MagicMock()
    ends.random.return_value = np.array([0.0, np.nextafter(1, 0)])
    assert Negatives(np.array([0, 3, 7, 5, 0])).draw(ends, (2,)).tolist() == [1, 3]
    ends.random.assert_called_once_with((2,))


def test_a_generator_is_a_function_of_seed_and_purpose() -> None:
    first = generator(1, "pairs", 2).random(3).tolist()
    assert generator(1, "pairs", 2).random(3).tolist() == first
    others = [generator(2, "pairs", 2), generator(1, "pairs", 3), generator(1, "negatives", 2)]
    assert first not in [one.random(3).tolist() for one in others]
