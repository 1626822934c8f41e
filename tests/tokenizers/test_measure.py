"""What is measured of a tokenizer: counts by an obvious way, and a broken tokenizer is found out."""

import pytest
from tokenizers import decoders

from lexmill.tokenizers import Tokenizer
from lexmill.tokenizers.measure import Fit, fit
from tests.tokenizers.made_tokenizers import KINDS, TEXTS, trained

NEW = ["Unseen wörds, Ωmega & 東京;\n\n  the mill", "", "the mill"]


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_counts_are_those_of_encoding_each_text(kind, lowercase):
    tokenizer = trained(kind, lowercase)
    found = fit(tokenizer, [*TEXTS, *NEW])
    ids = tokenizer.encode_batch([*TEXTS, *NEW])
    normal = [tokenizer.normalize(text) for text in [*TEXTS, *NEW]]
    assert found.texts == len(normal)
    assert found.tokens == sum(map(len, ids))
    assert found.unknown == sum(row.count(1) for row in ids if tokenizer.unk_id is not None)
    assert found.bytes == sum(len(text.encode()) for text in normal)
    assert found.words == sum(len(text.split()) for text in normal)
    assert found.round_trip_failures == 0, found.example
    assert (found.unknown > 0) == (kind not in ("bpe", "byte"))


def test_many_small_batches_change_nothing(monkeypatch):
    whole = fit(trained("word"), TEXTS)
    monkeypatch.setattr("lexmill.tokenizers.measure._BATCH", 10)
    monkeypatch.setattr("lexmill.tokenizers.measure.CACHED", 3)
    assert fit(trained("word"), TEXTS) == whole


def test_a_decoder_that_eats_spaces_is_found_out():
    tokenizer = trained("unigram")
    broken = Tokenizer(type(tokenizer.backend).from_str(tokenizer.backend.to_str()), "0" * 64)
    broken.backend.decoder = decoders.Sequence([decoders.Replace(" ", ""), decoders.Fuse()])
    found = fit(broken, ["the mill", "mill", "to the mill"])
    assert found.round_trip_failures == 2
    assert found.example == "' mill' came back as 'mill'"


def test_ratios_are_given_where_they_are_defined():
    assert "bytes_per_token" not in Fit().numbers()
    numbers = Fit(texts=1, tokens=4, bytes=10, words=2).numbers()
    assert (numbers["bytes_per_token"], numbers["tokens_per_word"]) == (2.5, 2.0)
