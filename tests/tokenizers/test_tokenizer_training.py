"""Training: the same bytes in every process, the bounds of the params, and what each kind leaves out."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer as Backend

from lexmill.base.errors import UserError
from lexmill.params.corpora import Tokenizer as Choice
from lexmill.stages.tokenizer import drawn_share
from lexmill.tokenizers import Tokenizer, kinds
from lexmill.tokenizers.bulk import pieces
from lexmill.tokenizers.training import evenly, train
from lexmill.tokenizers.unigram import _maximise, _prune, _without, count_words
from tests.tokenizers.made_tokenizers import KINDS, TEXTS, size, trained

_IN_A_PROCESS = """
import hashlib, sys
import numpy as np
from lexmill.tokenizers.training import train
random = np.random.default_rng(5)
# Many words of equal frequency, so that ties abound.
words = ["".join(random.choice(list("abcdeé"), random.integers(1, 8))) for _ in range(400)]
texts = [" ".join(random.choice(words, 30)) for _ in range(80)]
for kind in ("bpe", "wordpiece", "unigram", "byte", "character", "word"):
    size = {"byte": 0, "character": 0, "bpe": 400}.get(kind, 150)
    backend = train(kind, lambda: texts, vocab_size=size, min_frequency=2)
    print(kind, backend.get_vocab_size(), hashlib.sha256(backend.to_str().encode()).hexdigest())
"""


def test_every_process_trains_the_same_bytes():
    outputs = set()
    for seed, threads in (("0", "1"), ("1", "2"), ("2", "1"), ("random", "4")):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "RAYON_NUM_THREADS": threads}
        done = subprocess.run(
            [sys.executable, "-c", _IN_A_PROCESS], capture_output=True, text=True, env=environment, check=True
        )
        outputs.add(done.stdout)
    assert len(outputs) == 1
    assert outputs.pop().count("\n") == len(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_vocabulary_stays_within_its_bound(kind):
    bound = size(kind)
    assert trained(kind).vocab_size <= (bound or 300)
    assert sorted(trained(kind).backend.get_vocab().values()) == list(range(trained(kind).vocab_size))


@pytest.mark.parametrize("kind", ["wordpiece", "unigram", "word", "character"])
def test_a_small_vocabulary_keeps_the_most_frequent_and_counts_the_rest_as_unknown(kind):
    tokenizer = Tokenizer(train(kind, lambda: TEXTS, vocab_size=40), "0" * 64)
    assert tokenizer.vocab_size == 40
    assert 1 in tokenizer.encode(TEXTS[2])
    assert tokenizer.backend.token_to_id("e" if kind != "word" else " the") is not None


@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 0.9, 1.0])
def test_a_share_is_drawn_evenly_from_any_regular_order(share):
    drawn = evenly(share)
    found = np.array([drawn() for _ in range(60_000)])
    for every in (1, 2, 3, 7, 1000):  # of parallel texts each second one is a source
        for first in range(min(every, 3)):
            part = found[first::every]
            assert abs(part.mean() - share) <= 3 / len(part) ** 0.5 * 0.1 + 1 / len(part)
    again = evenly(share)
    assert found.tolist() == [again() for _ in range(60_000)]


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram", "word"])
def test_a_share_trains_on_the_pieces_drawn(kind):
    random = np.random.default_rng(3)
    texts = [" ".join(random.choice(["mill", "corn", "flour", "wheel"], 900)) + f" only{i}" for i in range(40)]
    drawn = evenly(0.25)
    picked = [piece for text in texts for piece in pieces(text) if drawn()]
    assert 0 < len(picked) < len(list(pieces(texts[0]))) * 40 / 3
    part = train(kind, lambda: texts, vocab_size=300, share=0.25)
    assert part.to_str() == train(kind, lambda: picked, vocab_size=300).to_str()
    assert part.to_str() != train(kind, lambda: texts, vocab_size=300).to_str()


def test_no_more_than_the_sample_is_trained_on():
    choice = Choice(corpus="a", kind="bpe", vocab_size=300, sample=100)
    assert drawn_share(choice, 50_000_000) == 1
    assert drawn_share(choice, 2_000_000_000) == 0.05
    assert drawn_share(Choice(corpus="a", kind="bpe", vocab_size=300, sample=0), 2_000_000_000) == 1
    assert drawn_share(Choice(corpus="a", kind="character"), 2_000_000_000) == 1


def test_a_vocabulary_larger_than_the_text_gives_is_smaller():
    for kind in ("bpe", "wordpiece", "unigram", "word"):
        backend = train(kind, lambda: ["a little text, a little more"], vocab_size=5000)
        assert 5 < backend.get_vocab_size() < 400


def test_rare_words_and_characters_are_left_out():
    texts = ["common common rare", "common z"]
    words = train("word", lambda: texts, vocab_size=50, min_frequency=2).get_vocab()
    assert " common" in words or "common" in words
    assert " rare" not in words
    assert "z" not in train("character", lambda: texts, vocab_size=0, min_frequency=2).get_vocab()
    assert "z" in train("character", lambda: texts, vocab_size=0, min_frequency=1).get_vocab()


def test_characters_are_in_order_of_frequency():
    backend = train("character", lambda: ["bbbaac"], vocab_size=0)
    assert [backend.id_to_token(i) for i in range(5, 8)] == ["b", "a", "c"]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "byte"])
@pytest.mark.parametrize("texts", [[], ["", ""]])
def test_no_text_is_refused(kind, texts):
    with pytest.raises(UserError, match="holds no text to train a tokenizer on"):
        train(kind, lambda: texts, vocab_size=300)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "byte"])
def test_text_that_is_not_unicode_is_refused(kind):
    with pytest.raises(UserError, match="lone surrogate at character 3 of 'ab"):
        train(kind, lambda: ["fine", "abc\ud800"], vocab_size=300)


def test_a_byte_tokenizer_has_one_size():
    assert train("byte", lambda: [], vocab_size=0).get_vocab_size() == 261
    assert train("byte", lambda: [], vocab_size=261).get_vocab_size() == 261
    with pytest.raises(UserError, match="a byte tokenizer has 261 entries, got 300"):
        train("byte", lambda: [], vocab_size=300)


def test_the_byte_alphabet_is_that_of_the_library():
    for byte, character in enumerate(kinds.byte_alphabet()):
        if byte < 128:
            ((piece, _),) = kinds.pre_tokenizer("byte").pre_tokenize_str(chr(byte))
            assert piece == character
    ((piece, _),) = kinds.pre_tokenizer("byte").pre_tokenize_str("é東😀")
    alphabet = kinds.byte_alphabet()
    assert piece == "".join(alphabet[byte] for byte in "é東😀".encode())


def test_words_are_counted_as_the_pattern_cuts_them():
    cutter = kinds.pre_tokenizer("unigram")
    expected = Counter(word for text in TEXTS for word, _ in cutter.pre_tokenize_str(text))
    assert count_words(lambda: TEXTS) == dict(expected)


def test_the_other_segmentation_of_a_piece_is_the_best_of_all():
    scores = {"a": -3.0, "b": -2.0, "c": -4.0, "ab": -4.5, "bc": -5.0, "abc": -1.0}
    assert _without("abc", scores) == max(-3 - 2 - 4, -4.5 - 4, -3 - 5)
    assert _without("ab", scores) == -5.0


def test_maximising_and_pruning_keep_characters_and_what_costs_most():
    kept = frozenset("ab")
    scores = _maximise({"a": 8, "b": 0, "ab": 4, "bb": 0}, kept)
    assert scores == {"a": round(float(np.log(8 / 12)), 6), "b": round(float(np.log(0.5 / 12)), 6), "ab": -1.098612}
    used = {"a": 1, "b": 1, "ab": 100, "ba": 1}
    scores = {"a": -3.0, "b": -3.0, "ab": -2.0, "ba": -2.0}
    assert sorted(_prune(scores, used, kept, 3)) == ["a", "ab", "b"]
    assert sorted(_prune(scores, used, kept, 1)) == ["a", "b"]


def test_the_segmentation_of_a_unigram_tokenizer_is_the_most_probable_one():
    pieces = [("a", -2.0), ("b", -2.0), ("ab", -3.0), ("aba", -4.6), ("ba", -3.5)]
    backend: Backend = kinds.assemble("unigram", kinds.unigram_model(pieces), lowercase=False)
    tokens = [backend.id_to_token(i) for i in Tokenizer(backend, "0" * 64).encode("abab")]
    assert tokens == ["ab", "ab"]


def test_no_file_of_the_library_is_left_behind(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train("wordpiece", lambda: TEXTS, vocab_size=100)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram", "word"])
def test_an_endless_run_of_letters_does_not_hold_up_training(kind):
    vocabulary = train(kind, lambda: ["x" * 300_000, "the mill the mill"], vocab_size=300).get_vocab()
    assert len(vocabulary) > 5
