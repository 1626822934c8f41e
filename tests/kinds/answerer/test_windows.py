"""Windows over long contexts: no token is skipped, each advances; where answers are in them; segments; offsets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers as backends
from hypothesis import given, settings
from hypothesis import strategies as st

from lexmill import tokenizers
from lexmill.kinds.answerer.windows import NOWHERE, Sizes, Window, WindowBatches, encode, segments, target, windows
from lexmill.tokenizers import Tokenizer
from lexmill.tokenizers.imported import import_tokenizer
from lexmill.tokenizers.kinds import assemble, byte_model
from lexmill.tokenizers.saving import save, save_adding
from tests.support.tiny_bert import make_tiny_bert


@pytest.fixture(scope="module")
def of_bytes(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    made = tmp_path_factory.mktemp("bytes")
    save(assemble("byte", byte_model(), lowercase=False), made)
    return tokenizers.load(made)


@pytest.fixture(scope="module")
def of_words(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """A WordPiece of lower-case words."""
    root = tmp_path_factory.mktemp("words")
    (root / "checkpoint").mkdir()
    (root / "made").mkdir()
    make_tiny_bert(root / "checkpoint", ["the", "red", "house", "gru", "##n", "is", "?", ".", "cafe"])
    return import_tokenizer(root / "checkpoint", root / "made")


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 60), st.integers(0, 9), st.integers(8, 24), st.integers(1, 40), st.integers(1, 4))
def test_every_token_is_in_a_window_and_windows_advance(
    length: int, asked: int, max_tokens: int, stride: int, max_question: int
) -> None:
    sizes = Sizes(max_tokens, stride, max_question, 5)
    made: Any = _Numbers(asked, length)
    (encoded,) = encode(made, [("q" * asked, "c" * length)], max_question)
    found = list(windows(made, [encoded], sizes))
    room = max_tokens - min(asked, max_question) - 3
    assert encoded.cut == (asked > max_question)
    seen: set[int] = set()
    for window in found:
        assert len(window.ids) <= max_tokens
        assert window.ids[0] == -1
        assert window.ids[window.begin - 1] == window.ids[-1] == -2
        assert window.ids[1 : window.begin - 1] == list(range(100, 100 + min(asked, max_question)))
        part = window.ids[window.begin : window.begin + window.count]
        assert part == list(range(window.first, window.first + window.count))
        seen.update(part)
    assert seen == set(range(length))
    firsts = [window.first for window in found]
    steps = np.diff(firsts).tolist()
    assert all(step == min(stride, room) for step in steps)
    assert len(found) == 1 + max(0, -(-(length - room) // min(stride, room)))


class _Numbers:
    """A tokenizer of numbered characters."""

    bos_id, eos_id, between = -1, -2, [-2]

    def __init__(self, asked: int, length: int) -> None:
        self.asked, self.length = asked, length

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        return [list(range(100, 100 + len(text))) for text in texts]

    def encode_offsets(self, texts: list[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        return [(list(range(len(text))), [(i, i + 1) for i in range(len(text))]) for text in texts]


def test_offsets_are_of_the_text_as_it_was_given(of_words: Tokenizer, of_bytes: Tokenizer) -> None:
    text = "The  GRÜN-Café"  # lower case without accents in the tokenizer's eyes
    ((ids, spans),) = of_words.encode_offsets([text])
    assert [text[start:end] for start, end in spans] == ["The", "GRÜ", "N", "-", "Café"]
    assert ids == of_words.encode(text)
    ((ids, spans),) = of_bytes.encode_offsets(["aé🙂 b"])
    assert ids == of_bytes.encode("aé🙂 b")
    assert spans == [(0, 1), (1, 2), (1, 2), (2, 3), (2, 3), (2, 3), (2, 3), (3, 4), (4, 5)]


def only(tokenizer: Tokenizer, question: str, context: str, sizes: Sizes) -> tuple[list[Window], Any]:
    (encoded,) = encode(tokenizer, [(question, context)], sizes.max_question)
    return list(windows(tokenizer, [encoded], sizes)), encoded.spans


def test_the_target_is_the_first_answer_that_is_all_in_the_window(of_words: Tokenizer) -> None:
    context = "The red house is the Grün house."
    made, spans = only(of_words, "is?", context, Sizes(9, 3, 2, 30))
    assert [(window.first, window.count) for window in made] == [(0, 4), (3, 4), (6, 3)]
    red, green = {"text": "red", "start": 4}, {"text": "Grün house", "start": 21}
    # Of the tokens the red house is | the gru ##n house | . in windows of four, each three after the last.
    assert [target(window, spans, [green]) for window in made] == [(NOWHERE, NOWHERE)] * 3
    assert [target(window, spans, [green, red]) for window in made] == [(5, 5), (NOWHERE, NOWHERE), (NOWHERE, NOWHERE)]
    (whole,), spans = only(of_words, "is?", context, Sizes(20, 9, 2, 30))
    assert whole.begin == 4
    assert target(whole, spans, [green]) == (4 + 5, 4 + 7)
    assert target(whole, spans, [{"text": "ouse", "start": 9}]) == (4 + 2, 4 + 2)  # a part of a token: all of it
    assert target(whole, spans, []) == (NOWHERE, NOWHERE)


def test_batches_hold_segments_and_targets(of_words: Tokenizer) -> None:
    sizes = Sizes(12, 9, 3, 30)
    pairs = [("is?", "The red house."), ("is the red?", "The")]
    made = list(windows(of_words, encode(of_words, pairs, 3), sizes))
    batches = WindowBatches(made, [(5, 6), (0, 0)], 2, seed=0)
    found = batches.arrays(batches.collate(np.array([1, 0])))
    assert found["tokens"].tolist() == [[*made[1].ids, 0, 0], made[0].ids]
    assert found["segments"].tolist() == [[0, 0, 0, 0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 1, 1, 1, 1, 1]]
    assert (found["starts"].tolist(), found["ends"].tolist()) == ([0, 5], [0, 6])


def test_the_pairs_template_of_transformers_gives_the_same_window(of_words: Tokenizer, tmp_path: Path) -> None:
    made, _ = only(of_words, "is the?", "red house", Sizes(20, 9, 9, 30))
    save_adding(of_words, tmp_path / "tokenizer.json", begins=[of_words.bos_id])
    there = backends.Tokenizer.from_file(str(tmp_path / "tokenizer.json")).encode("is the?", "red house")
    assert there.ids == made[0].ids
    mask = np.ones((1, len(there.ids)), dtype=bool)
    assert segments(np.array([made[0].begin]), mask)[0].tolist() == there.type_ids
