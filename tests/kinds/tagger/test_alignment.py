"""Words to pieces and back: no tag is shifted, long sentences lose no word, a cut divides no entity without need."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lexmill import tokenizers
from lexmill.base.errors import UserError
from lexmill.base.tag_schemes import Scheme, check
from lexmill.data.texts import encode
from lexmill.kinds.tagger.alignment import Window, best_window, in_scheme, model_tags, pieces, windows
from lexmill.kinds.tagger.batches import TaggingBatches
from lexmill.models.common.chain import IGNORED
from lexmill.tokenizers import Tokenizer
from lexmill.tokenizers.imported import import_tokenizer
from lexmill.tokenizers.kinds import assemble, byte_model
from lexmill.tokenizers.saving import save
from tests.support.tiny_bert import make_tiny_bert

PLAIN: Any = SimpleNamespace(bos_id=1, eos_id=2)  # all that `windows` reads of a tokenizer
SCHEMES: tuple[Scheme, ...] = ("iob2", "bioes")
WORDS = ["don", "'", "t", "pa", "##ris", "un", "##b", "##bon", "."]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    made = tmp_path_factory.mktemp("bert")
    make_tiny_bert(made / "there", WORDS)
    import_tokenizer(made / "there", made / "here")
    return tokenizers.load(made / "here")


@pytest.fixture(scope="module")
def byte(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    made = tmp_path_factory.mktemp("byte")
    save(assemble("byte", byte_model(), lowercase=False), made)
    return tokenizers.load(made)


def test_the_pieces_of_a_word_are_those_of_transformers(bert: Tokenizer) -> None:
    """As `tokenizer(words, is_split_into_words=True)` there, written out."""
    ids = bert.backend.get_vocab()
    found = pieces(bert, [["Don't", "Paris", "unb", "."], ["zzz"]])
    assert found[0] == [
        [ids["don"], ids["'"], ids["t"]],
        [ids["pa"], ids["##ris"]],
        [ids["un"], ids["##b"]],
        [ids["."]],
    ]
    assert found[1] == [[ids["[UNK]"]]]


def test_a_word_without_pieces_shifts_nothing(bert: Tokenizer) -> None:
    ids = bert.backend.get_vocab()
    (found,) = pieces(bert, [["t", "\u200d", "pa", "\ufeff"]])
    assert found == [[ids["t"]], [bert.unk_id], [ids["pa"]], [bert.unk_id]]


def test_the_pieces_together_are_those_of_the_text(bert: Tokenizer, byte: Tokenizer) -> None:
    sentences = [["don't", "unbbon", "x"], ["e\u00e4\u20ac", "\U0001f600", "a b"]]
    for one in (bert, byte):
        for words, found in zip(sentences, pieces(one, sentences), strict=True):
            assert len(found) == len(words)
            whole = [i for i in encode(one, [" ".join(words)], 999)[0][1:-1]]
            kept = [i for of_word in found for i in of_word]
            spaces = set() if one is bert else {one.encode(" ")[0]}
            assert [i for i in kept if i not in spaces] == [i for i in whole if i not in spaces]


def test_text_that_is_not_unicode_is_refused(byte: Tokenizer) -> None:
    with pytest.raises(UserError, match="text 1 is not Unicode"):
        pieces(byte, [["a"], ["b", "\ud800"]])


@given(
    st.lists(st.tuples(st.integers(1, 9), st.sampled_from(["O", "B-x", "I-x"])), min_size=1, max_size=30),
    st.integers(4, 12),
)
def test_each_word_is_learned_once_and_no_window_is_too_long(words: list[tuple[int, str]], most: int) -> None:
    of_words = [[10 + i] * length for i, (length, _) in enumerate(words)]
    tags = ["B-x" if tag == "I-x" and (i == 0 or words[i - 1][1] == "O") else tag for i, (_, tag) in enumerate(words)]
    learned = windows(7, of_words, PLAIN, most, tags)
    assert [i for window in learned for i in range(window.start, window.stop)] == list(range(len(words)))
    read = windows(7, of_words, PLAIN, most)
    assert {i for window in read for i in range(window.start, window.stop)} == set(range(len(words)))
    for window in [*learned, *read]:
        assert (window.sentence, window.tokens[0], window.tokens[-1]) == (7, 1, 2)
        assert len(window.tokens) == len(window.words) <= most
        for number in range(window.stop - window.start):
            of_word = [token for token, word in zip(window.tokens, window.words, strict=True) if word == number]
            assert of_word == of_words[window.start + number][: most - 2]
    for scheme in SCHEMES:
        for window in learned:
            check(in_scheme(tags[window.start : window.stop], scheme), scheme)
    for word in range(len(words)):
        best = read[best_window(word, read, len(words))]
        assert best.start <= word < best.stop


def test_a_cut_falls_between_entities_and_windows_overlap_by_half() -> None:
    tags = ["O", "O", "B-x", "I-x", "I-x", "I-x", "O", "O"]
    of_words = [[9]] * 8
    learned = windows(0, of_words, PLAIN, 6, tags)
    assert [(one.start, one.stop) for one in learned] == [(0, 2), (2, 6), (6, 8)]
    read = windows(0, of_words, PLAIN, 6)
    assert [(one.start, one.stop) for one in read] == [(0, 4), (2, 6), (4, 8)]
    # Word 2 has one word after it in the first window, none before it in the second.
    assert [best_window(word, read, 8) for word in range(8)] == [0, 0, 0, 1, 1, 2, 2, 2]


def test_the_tags_of_a_model() -> None:
    labels = ("B-loc", "B-per", "I-per", "O")
    assert model_tags(labels, True, False) == (["O", "B-loc", "I-loc", "B-per", "I-per"], "iob2")
    tags, scheme = model_tags(labels, True, True)
    assert scheme == "bioes"
    assert tags == ["O", *(f"{prefix}-{kind}" for kind in ("loc", "per") for prefix in "BIES")]
    assert model_tags(("NOUN", "O"), False, False) == (["NOUN", "O"], "none")
    assert in_scheme(["B-per", "I-per", "O", "B-loc"], "bioes") == ["B-per", "E-per", "O", "S-loc"]
    assert in_scheme(["I-per", "O"], "iob2") == ["B-per", "O"]


def test_a_batch_has_the_labels_of_its_words() -> None:
    some = [Window(0, 0, 2, [1, 5, 6, 7, 2], [-1, 0, 0, 1, -1]), Window(1, 0, 1, [1, 8, 2], [-1, 0, -1])]
    number = {"N": 0, "V": 1}
    batches = TaggingBatches(some, [["N", "V"], ["V"]], number, batch_size=2, seed=0, pad_id=0)
    found = batches.arrays(batches.collate(np.array([0, 1])))
    assert found["words"].tolist() == [[-1, 0, 0, 1, -1], [-1, 0, -1, -1, -1]]
    no = IGNORED
    assert found["labels"].tolist() == [[0, 1, no, no, no], [1, no, no, no, no]]
    assert found["mask"].sum(axis=1).tolist() == [5, 3]
