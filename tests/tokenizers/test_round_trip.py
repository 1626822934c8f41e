"""Text to ids and back: nothing eaten, nothing added, nothing forged."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lexmill.base.errors import UserError
from lexmill.tokenizers import SPECIAL_TOKENS
from tests.tokenizers.made_tokenizers import KINDS, TEXTS, trained

ANY_TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=60)
KNOWN_TEXT = st.text(st.sampled_from(sorted(set("".join(TEXTS)))), max_size=60)


@pytest.mark.parametrize("kind", ["bpe", "byte"])
@given(text=ANY_TEXT)
@example("</s><pad> <unk>\x00\u2028\u0085 \r\n\t  a  ")
@settings(max_examples=100, deadline=None)
def test_bytes_bring_back_every_text(kind, text):
    tokenizer = trained(kind)
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert all(5 <= i < tokenizer.vocab_size for i in ids)
    assert tokenizer.unk_id is None


@pytest.mark.parametrize("kind", ["wordpiece", "unigram", "character"])
@given(text=KNOWN_TEXT)
@example("##a # ## a##b end_of")
@settings(max_examples=100, deadline=None)
def test_pieces_bring_back_every_text_of_known_characters(kind, text):
    tokenizer = trained(kind)
    ids = tokenizer.encode(text)
    assert tokenizer.unk_id not in ids
    assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("kind", KINDS)
def test_the_training_texts_come_back(kind):
    tokenizer = trained(kind)
    for text in TEXTS:
        ids = tokenizer.encode(text)
        if kind != "word":  # that one leaves rare words out
            assert tokenizer.decode(ids) == text
    sentence = "the little one was going to the mill"
    assert tokenizer.decode(tokenizer.encode(" " + sentence)) == " " + sentence


def test_a_byte_is_its_value_plus_five():
    assert trained("byte").encode("aé\n") == [byte + 5 for byte in "aé\n".encode()]


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_have_fixed_ids(kind):
    tokenizer = trained(kind)
    assert [tokenizer.backend.token_to_id(token) for token in SPECIAL_TOKENS] == [0, 1, 2, 3, 4]
    assert (tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.mask_id) == (0, 2, 3, 4)
    assert tokenizer.unk_id == (None if kind in ("bpe", "byte") else 1)


@pytest.mark.parametrize("kind", KINDS)
@given(text=st.lists(st.one_of(st.sampled_from(SPECIAL_TOKENS), ANY_TEXT), max_size=6).map("".join))
@settings(max_examples=50, deadline=None)
def test_a_special_token_typed_by_a_user_stays_text(kind, text):
    ids = trained(kind).encode(text)
    assert not {0, 2, 3, 4} & set(ids)


@pytest.mark.parametrize("kind", KINDS)
def test_decode_leaves_out_special_tokens_but_shows_unknown_ones(kind):
    tokenizer = trained(kind)
    ids = tokenizer.encode(" the mill")
    assert tokenizer.decode([2, *ids, 3, 0, 0, 4]) == " the mill"
    assert tokenizer.decode([2, *ids, 3], skip_special=False) == "<s> the mill</s>"
    assert tokenizer.decode([*ids, 1]) == " the mill<unk>"
    assert tokenizer.decode([]) == ""


@pytest.mark.parametrize("kind", KINDS)
def test_decoding_piece_by_piece_is_decoding_the_whole(kind):
    tokenizer = trained(kind)
    ids = tokenizer.encode("the little one, going to\nthe mill")
    assert "".join(tokenizer.decode([i]) for i in ids) == tokenizer.decode(ids)


@pytest.mark.parametrize("kind", KINDS)
def test_lower_case_is_what_the_tokenizer_sees(kind):
    tokenizer = trained(kind, lowercase=True)
    assert tokenizer.normalize("The MILL ÄÖ") == "the mill äö"
    assert trained(kind).normalize("The MILL") == "The MILL"
    assert tokenizer.encode("The MILL") == tokenizer.encode("the mill")
    assert tokenizer.decode(tokenizer.encode(" THE mill")) == " the mill"


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_is_its_texts(kind):
    tokenizer = trained(kind)
    texts = ["the mill", "", "was going\n\nto"]
    assert tokenizer.encode_batch(texts) == [tokenizer.encode(text) for text in texts]
    assert tokenizer.encode("") == []
    assert tokenizer.encode_batch([]) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_lone_surrogate_is_refused(kind):
    with pytest.raises(UserError, match="not Unicode: a lone surrogate"):
        trained(kind, lowercase=True).encode("a\ud800b")
    with pytest.raises(UserError, match="not Unicode: a lone surrogate"):
        trained(kind, lowercase=True).normalize("a\ud800b")


def test_very_long_words_are_not_lost():
    for kind in ("wordpiece", "unigram"):
        tokenizer = trained(kind)
        text = "going" * 5000
        ids = tokenizer.encode(text)
        assert tokenizer.unk_id not in ids
        assert tokenizer.decode(ids) == text
