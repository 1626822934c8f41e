"""Words of corpora and vocabularies, and the tokens of a word inside a text."""

from pathlib import Path

import pytest

from lexmill.corpora.prepared import PreparedCorpus
from lexmill.evaluation import words
from lexmill.evaluation.words import frequent_words, vocabulary_words, word_tokens
from lexmill.tokenizers import Tokenizer
from lexmill.tokenizers.imported import import_tokenizer
from lexmill.tokenizers.kinds import assemble, byte_model, character_model, word_model, wordpiece_model
from tests.support.prepared import write_prepared
from tests.support.tiny_bert import make_tiny_bert

WORDS = Tokenizer(assemble("word", word_model([" king", " queen", "king", " 42", " ,", " don't"]), lowercase=False), "")


def corpus(folder: Path, *texts: str) -> PreparedCorpus:
    write_prepared(folder / "c", "text", {"train": [{"text": text} for text in texts], "test": [{"text": "unseen"}]})
    return PreparedCorpus(folder / "c")


def test_words_of_another_split(tmp_path: Path) -> None:
    write_prepared(tmp_path / "c", "text", {"train": [{"text": "king"}], "test": [{"text": "a man, a plan"}]})
    assert frequent_words(PreparedCorpus(tmp_path / "c"), 2, "test") == ["a", "man"]


def test_words_are_counted_with_their_case_and_without_what_is_beside_them(tmp_path: Path) -> None:
    found = frequent_words(corpus(tmp_path, 'The king, the "king";\nking--don\'t 42', "the हिन्दी _the_ don't"))
    assert found == ["king", "the", "don't", "The", "हिन्दी"]  # equal counts in code-point order
    assert frequent_words(PreparedCorpus(tmp_path / "c"), 2) == ["king", "the"]


def test_both_sides_of_a_pair_are_counted(tmp_path: Path) -> None:
    pairs = [{"source": "light light", "target": "Licht"}]
    write_prepared(tmp_path / "c", "parallel", {"train": pairs}, ("en", "de"))
    assert frequent_words(PreparedCorpus(tmp_path / "c")) == ["light", "Licht"]


def test_a_large_corpus_is_read_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "MOST_CHARACTERS", 5)
    assert frequent_words(corpus(tmp_path, "first", "second")) == ["first"]


def test_the_space_before_a_word_belongs_to_it_if_it_is_one_token_with_it() -> None:
    assert word_tokens(["king", "nobody"], WORDS) == [[5], [WORDS.unk_id]]
    characters = Tokenizer(assemble("character", character_model([" ", "a", "n", "o"]), lowercase=False), "")
    assert word_tokens(["on", "", "an"], characters) == [[8, 7], [], [6, 7]]
    data = Tokenizer(assemble("byte", byte_model(), lowercase=False), "")
    assert word_tokens(["é"], data) == [data.encode("é")]
    pieces = Tokenizer(assemble("wordpiece", wordpiece_model([" king", "##s", "a"]), lowercase=False), "")
    assert word_tokens(["kings"], pieces) == [[5, 6]]


def test_the_pieces_of_a_tokenizer_that_drops_spaces(tmp_path: Path) -> None:
    make_tiny_bert(tmp_path / "bert", ["king", "##s", "a"])
    (tmp_path / "own").mkdir()
    tokenizer = import_tokenizer(tmp_path / "bert", tmp_path / "own")
    vocabulary = tokenizer.backend.get_vocab()
    assert word_tokens(["Kings"], tokenizer) == [[vocabulary["king"], vocabulary["##s"]]]
    assert vocabulary_words(tokenizer) == ["king", "a"]


def test_the_whole_words_of_a_vocabulary() -> None:
    assert vocabulary_words(WORDS) == ["king", "queen", "don't"]
    assert vocabulary_words(WORDS, 1) == ["king"]
