"""Text that is tokenised already: tokens are what blanks separate, subwords that end in @@ among them."""

from __future__ import annotations

import pytest
from hypothesis import given

from lexmill.tokenizers.tokenizer import Tokenizer, joined
from lexmill.tokenizers.training import train
from tests.tokenizers.test_bulk_encoding import TEXT

LINES = ["ein mann anst@@ arr@@ t ein haus .", "ein haus , ein mann ."]


def made(vocab_size: int = 100, *, lowercase: bool = False) -> Tokenizer:
    return Tokenizer(train("blanks", lambda: LINES, vocab_size=vocab_size, lowercase=lowercase), "0" * 64)


def test_each_token_between_blanks_is_an_entry() -> None:
    tokenizer = made()
    assert tokenizer.at_blanks
    assert tokenizer.vocab_size == 5 + len({word for line in LINES for word in line.split()})
    frequent = [tokenizer.backend.id_to_token(i) for i in range(5, 9)]
    assert frequent == ["ein", ".", "haus", "mann"]
    ids = tokenizer.encode("ein\u00a0 haus,  arr@@ t\n")
    assert [tokenizer.backend.id_to_token(i) for i in ids] == ["ein", "<unk>", "arr@@", "t"]
    assert tokenizer.decode(ids) == "ein <unk> arr@@ t"
    assert made(lowercase=True).encode("EIN") == [5]
    assert made(7).vocab_size == 7


@pytest.mark.parametrize("typed", ["</s>", "a <pad> b", "<s>\t<mask> <unk>"])
def test_what_looks_like_a_special_token_is_none(typed: str) -> None:
    tokenizer = made()
    words = tokenizer.normalize(typed).split()
    assert "".join(words) == "".join(typed.split())
    assert all(i == tokenizer.unk_id for i in tokenizer.encode(typed) if i < 5)
    assert not {"</s>", "<pad>", "<s>", "<mask>", "<unk>"} & set(words)


@given(text=TEXT)
def test_decoding_gives_the_normalised_text_back(text: str) -> None:
    tokenizer = Tokenizer(train("blanks", lambda: [f"{text} x"], vocab_size=1000), "0" * 64)
    assert tokenizer.decode(tokenizer.encode(text)) == tokenizer.normalize(text)
    assert tokenizer.normalize(tokenizer.normalize(text)) == tokenizer.normalize(text)


def test_subwords_are_joined() -> None:
    assert joined("anst@@ arr@@ t . bei@@") == "anstarrt . bei"
    assert joined("a@@b @@ c") == "a@@b c"
    assert joined("") == ""
