"""The fast way to encode a corpus equals the obvious one."""

import json
import re
import sys

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers

from lexmill.base.errors import UserError
from lexmill.tokenizers.bulk import WHITE_SPACE, BulkEncoder, chunks, pieces
from lexmill.tokenizers.tokenizer import Tokenizer
from tests.tokenizers.made_tokenizers import KINDS, TEXTS, trained

# Letters, marks, digits, punctuation, apostrophes, every kind of white space and what only looks like it.
ALPHABET = "aBéß\u0301東٣1.,:;!?'’-#_&ĳ \t\n\r\x0b\x85\xa0\u2003\u2028\u3000\u180e\u200b\x1c\x1f\ufeff😀"
TEXT = st.one_of(
    st.text(st.sampled_from(ALPHABET), max_size=40),
    st.text(st.characters(exclude_categories=("Cs",)), max_size=40),
    st.lists(st.sampled_from(["the", " the", "don't", "mill,", "\n", " ", "'s", "<s>", "going."]), max_size=12).map(
        "".join
    ),
)


@pytest.mark.parametrize("kind", [*KINDS, "blanks"])
@given(texts=st.lists(TEXT, max_size=4))
@example(texts=["a\n\n b", "\nthe  mill\n", "it's,'s", "x" * 200 + ",\n" + "y" * 200])
@settings(max_examples=150, deadline=None)
def test_bulk_encoding_gives_the_ids_of_each_text(kind, texts):
    tokenizer = trained(kind)
    ids, lengths = BulkEncoder(tokenizer).encode(texts)
    expected = [tokenizer.encode(text) for text in texts]
    assert lengths.tolist() == [len(row) for row in expected]
    assert ids.tolist() == [i for row in expected for i in row]


def imported(pre_tokenizer, cuts_at_space):
    """A byte-level BPE with the cutting of another project, which has a token for a newline and a space together."""
    from tokenizers import Tokenizer as Backend

    state = json.loads(trained("bpe").backend.to_str())
    state["model"]["vocab"]["ĊĠ"] = len(state["model"]["vocab"])
    state["model"]["merges"].insert(0, ["Ċ", "Ġ"])
    backend = Backend.from_str(json.dumps(state))
    backend.pre_tokenizer = pre_tokenizer
    tokenizer = Tokenizer(backend, "f" * 64)
    tokenizer.cuts_at_space = cuts_at_space
    return tokenizer


@given(texts=st.lists(TEXT, max_size=4))
@example(texts=["a 5b\n c d", " 5", "x 5 y\n z"])
@settings(max_examples=150, deadline=None)
def test_digits_set_apart_change_no_id(texts):
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer = imported(
        pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)]), cuts_at_space=True
    )
    ids, lengths = BulkEncoder(tokenizer).encode(texts)
    rows = np.split(ids, np.cumsum(lengths))[: len(texts)]
    assert [row.tolist() for row in rows] == [tokenizer.encode(text) for text in texts]


def test_a_pattern_that_crosses_the_cuts_sees_texts_whole():
    pattern = pre_tokenizers.Split(Regex(r"[^\s]+[\n]*| "), behavior="isolated")
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer = imported(pre_tokenizers.Sequence([pattern, level]), cuts_at_space=False)
    texts = ["a mill.\nThe mill", "the mill\n\nthe"]
    ids, lengths = BulkEncoder(tokenizer).encode(texts)
    assert lengths.tolist() == [len(tokenizer.encode(text)) for text in texts]
    assert ids.tolist() == [i for text in texts for i in tokenizer.encode(text)]


def test_a_refused_text_spoils_nothing_that_comes_after():
    tokenizer = trained("bpe")
    encoder = BulkEncoder(tokenizer)
    with pytest.raises(UserError, match="lone surrogate"):
        encoder.encode_normal(["the mill", "a\udfffb the mill"])
    assert encoder.encode(["the mill"])[0].tolist() == tokenizer.encode("the mill")


@pytest.mark.parametrize("kind", ["bpe", "wordpiece"])
def test_remembering_and_forgetting_change_nothing(kind, monkeypatch):
    monkeypatch.setattr("lexmill.tokenizers.bulk.CACHED", 5)
    monkeypatch.setattr("lexmill.tokenizers.bulk._LONGEST", 4)
    tokenizer = trained(kind, lowercase=True)
    encoder = BulkEncoder(tokenizer)
    for text in TEXTS:
        assert encoder.encode([text])[0].tolist() == tokenizer.encode(text)


@given(text=TEXT)
def test_chunks_and_pieces_join_to_the_text(text):
    assert "".join(chunks(text)) == text
    assert "".join(pieces(text, size=5)) == text
    assert all(chunks(text))


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram", "word", "blanks"])
@given(text=TEXT)
@settings(max_examples=80, deadline=None)
def test_pieces_are_encoded_independently(kind, text):
    tokenizer = trained(kind)
    assert [i for piece in pieces(text, size=3) for i in tokenizer.encode(piece)] == tokenizer.encode(text)


def test_white_space_means_the_same_to_both_engines():
    everything = "".join(chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000)
    ours = set(re.findall(f"[{WHITE_SPACE}]", everything))
    theirs = pre_tokenizers.Split(Regex(r"\s"), behavior="isolated")
    candidates = ours | {character for character in everything if character.isspace()} | {"\u180e", "\u200b", "\ufeff"}
    found = {
        character
        for character in candidates
        if any(piece == character for piece, _ in theirs.pre_tokenize_str(f"a{character}b"))
    }
    assert found == ours


def test_large_vocabularies_take_four_bytes():
    encoder = BulkEncoder(trained("bpe"))
    assert encoder.dtype == np.uint16


def test_a_lone_surrogate_is_refused():
    for kind in KINDS:
        with pytest.raises(UserError, match="lone surrogate"):
            BulkEncoder(trained(kind)).encode(["fine", "a\udfffb"])
