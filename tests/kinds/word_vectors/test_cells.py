"""Co-occurrence counts, by hand and beside a double loop."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lexmill.kinds.word_vectors.cells import Cells, cooccurrences
from lexmill.kinds.word_vectors.pairs import KnownTokens
from tests.kinds.word_vectors.made_text import FIRST, known

DOCUMENTS = st.lists(st.lists(st.integers(-1, 4), max_size=12), min_size=1, max_size=5)


def as_dict(cells: Cells) -> dict[tuple[int, int], float]:
    keys = zip(cells.rows.tolist(), cells.columns.tolist(), strict=True)
    return dict(zip(keys, cells.counts.tolist(), strict=True))


def slow(text: KnownTokens, window: int) -> dict[tuple[int, int], float]:
    found: dict[tuple[int, int], float] = defaultdict(float)
    for i, one in enumerate(text.tokens.tolist()):
        for j, other in enumerate(text.tokens.tolist()):
            if i != j and abs(i - j) <= window and text.document[i] == text.document[j]:
                found[one, other] += 1 / abs(i - j)
    return found


def test_three_words_by_hand() -> None:
    a, b, c = FIRST, FIRST + 1, FIRST + 2
    found = as_dict(cooccurrences(known([0, 1, 0], [1, -1, 2], [2]), 2))
    assert found == {(a, b): 2, (b, a): 2, (a, a): 1, (b, c): 1, (c, b): 1}  # twice 1/2; the unknown token is no step


@settings(deadline=None, max_examples=60)
@given(documents=DOCUMENTS, window=st.integers(1, 15), piece=st.integers(1, 20))
def test_counts_are_those_of_a_double_loop_however_they_are_cut(
    documents: list[list[int]], window: int, piece: int
) -> None:
    text = known(*documents)
    cells = cooccurrences(text, window, piece)
    found, wanted = as_dict(cells), slow(text, window)
    assert len(found) == len(cells.counts), "each cell once"
    assert found.keys() == wanted.keys()
    assert found == pytest.approx(wanted)
