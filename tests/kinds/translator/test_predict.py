"""Lines in, lines out."""

from __future__ import annotations

import random

import pytest
import torch
from torch import nn

from lexmill.base.errors import UserError
from lexmill.decoding.settings import BeamSearch, Sampling
from lexmill.kinds.translator.predict import Translation, rescored, translate, translate_lines
from lexmill.tokenizers.tokenizer import TRAINED
from tests.decoding.forced import score
from tests.decoding.naive import naive_beam, tiny

BEAM = BeamSearch(3, 0.6)
LETTERS = "abcdefghijklmnopqr"


class Letters:
    """A tokenizer of letters; a space is no token."""

    fingerprint = "letters"
    special = TRAINED

    @property
    def target(self) -> Letters:
        return self

    def encode_batch(self, lines: list[str]) -> list[list[int]]:
        return [[5 + LETTERS.index(letter) for letter in line if letter != " "] for line in lines]

    def normalize(self, text: str) -> str:
        return text

    def decode(self, ids: list[int]) -> str:
        return "".join(LETTERS[i - 5] for i in ids)


def test_lines_keep_their_places_whatever_the_batch() -> None:
    module = tiny(5)
    lines = ["abc", "", "fedcba", "a", "   ", "abc", "cc", "fa"]
    for batch_tokens in (1, 40, 10_000):
        found = translate_lines(module, Letters(), lines, BEAM, batch_tokens)
        for line, ids, one in zip(lines, Letters().encode_batch(lines), found, strict=True):
            if not line.strip():
                assert (one.text, one.score, one.truncated) == ("", 0.0, False)
                continue
            [(tokens, value)] = naive_beam(module, tuple(ids), BEAM)
            assert one.text == Letters().decode(list(tokens))
            assert one.score == pytest.approx(value, abs=1e-5)


def test_the_last_of_ten_thousand_lines_is_as_right_as_the_first() -> None:
    module, draws = tiny(5), random.Random(0)
    lines = ["".join(draws.choices("abcdef", k=draws.randint(1, 6))) for _ in range(10_000)]
    found = translate_lines(module, Letters(), lines, BEAM, 4096)
    for place in (0, 1, 4_999, 9_998, 9_999):
        (ids,) = Letters().encode_batch([lines[place]])
        [(tokens, value)] = naive_beam(module, tuple(ids), BEAM)
        assert found[place].text == Letters().decode(list(tokens))
        assert found[place].score == pytest.approx(value, abs=1e-5)
    by_line: dict[str, set[str]] = {}
    for line, one in zip(lines, found, strict=True):
        by_line.setdefault(line, set()).add(one.text)
    assert {len(texts) for texts in by_line.values()} == {1}


def test_nothing_to_translate() -> None:
    assert translate_lines(tiny(), Letters(), [], BEAM, 100) == []
    assert [one.text for one in translate_lines(tiny(), Letters(), ["", ""], BEAM, 100)] == ["", ""]


def test_a_line_of_blanks_is_empty_though_the_tokenizer_knows_blanks() -> None:
    class Blanks(Letters):
        def encode_batch(self, lines: list[str]) -> list[list[int]]:
            return super().encode_batch([line.replace(" ", "a") for line in lines])

    blank, word = translate_lines(tiny(5), Blanks(), ["   ", "aa"], BEAM, 100)
    assert (blank.text, blank.score) == ("", 0.0)
    assert word.score < 0


def test_a_line_beyond_the_positions_is_cut_and_says_so() -> None:
    module = tiny(5, positions=8)
    cut, whole = translate_lines(module, Letters(), ["abcdefabcdef", "abcdefa"], BEAM, 100)
    assert cut.truncated
    assert not whole.truncated
    assert (cut.text, cut.score) == (whole.text, whole.score)


def test_broken_weights_are_reported() -> None:
    module = tiny()
    nn.init.constant_(module.decoder_norm.weight, float("nan"))
    with pytest.raises(UserError, match="not finite"):
        translate_lines(module, Letters(), ["abc"], BEAM, 100)


def test_forced_scores_do_not_depend_on_the_batch() -> None:
    module = tiny(1)
    single = score(module, [(5, 6)], [(7,)])[0]
    batch = score(module, [(5, 6, 8, 9), (5, 6), (), (5,)], [(), (7,), (5, 5, 5), ()], batch_tokens=5)
    assert batch[1] == pytest.approx(single, abs=1e-5)
    assert all(value < 0 for value in batch)
    assert score(module, [], []) == []
    # An empty translation is the end token alone.
    ids = torch.tensor([[5, 6, 3]])
    with torch.no_grad():
        logits = module(ids, torch.ones_like(ids, dtype=torch.bool), torch.tensor([[2]]))
    assert score(module, [(5, 6)], [()])[0] == pytest.approx(float(logits.log_softmax(-1)[0, 0, 3]), abs=1e-5)


def test_the_n_best_of_a_line_are_those_of_the_naive_search() -> None:
    module, lines = tiny(5), ["abc", "", "fedcba", "abc"]
    found = translate(module, Letters(), lines, BEAM, 100, n_best=3)
    assert [len(own) for own in found] == [3, 1, 3, 3]
    for line, own in zip(lines, found, strict=True):
        if line:
            expected = naive_beam(module, tuple(Letters().encode_batch([line])[0]), BEAM, 3)
            assert [one.text for one in own] == [Letters().decode(list(tokens)) for tokens, _ in expected]
            assert [one.score for one in own] == pytest.approx([value for _, value in expected], abs=1e-5)
    with pytest.raises(UserError, match="4 translations of a line need as large a beam_size; it is 3"):
        translate(module, Letters(), lines, BEAM, 100, n_best=4)


def test_a_translation_begins_as_asked_for() -> None:
    module, lines, prefixes = tiny(5), ["abc", "", "fedcba", "abc", "abc"], ["ff", "aa", "", "e", ""]
    found = translate_lines(module, Letters(), lines, BEAM, 100, prefixes=prefixes)
    for line, start, one in zip(lines, prefixes, found, strict=True):
        if line:
            ids, begun = (tuple(row) for row in Letters().encode_batch([line, start]))
            [(tokens, value)] = naive_beam(module, ids, BEAM, start=begun)
            assert one.text == Letters().decode(list(tokens))
            assert one.text.startswith(start)
            assert one.score == pytest.approx(value, abs=1e-5)
    assert found[1].text == ""


def test_draws_of_a_line_depend_on_the_seed_and_not_on_other_lines() -> None:
    module, lines = tiny(5), ["abc", "", "fedcba", "abc", "e" * 30]
    sampling = Sampling(temperature=1.5, seed=4)
    found = translate(module, Letters(), lines, BEAM, 100, n_best=5, sampling=sampling)
    assert [len(own) for own in found] == [5, 1, 5, 5, 5]
    assert found[0] != found[3]  # the same line again: other draws
    assert len({one.text for one in found[0]}) > 1
    assert [one.truncated for own in found for one in own] == [False] * 16 + [True] * 5
    for batch_tokens, order in ((1, [0, 1, 2, 3, 4]), (500, [4, 2, 0, 1, 3])):
        again = translate(module, Letters(), [lines[i] for i in order], BEAM, batch_tokens, n_best=5, sampling=sampling)
        texts = [[one.text for one in found[i]] for i in order]
        assert [[one.text for one in own] for own in again] == texts
    other = translate(module, Letters(), lines, BEAM, 100, n_best=5, sampling=Sampling(temperature=1.5, seed=5))
    assert other != found


def test_a_language_model_scores_an_empty_translation_too() -> None:
    found = [[Translation("ein Satz", -1.0, False), Translation("", -3.0, False)], [Translation("", 0.0, False)]]
    nats = {"ein Satz": -20.0, "": -10.0}
    ordered = rescored(found, lambda texts: [nats[text] for text in texts], 0.1)
    assert [(one.text, one.score) for one in ordered[0]] == [("ein Satz", -3.0), ("", -4.0)]
    assert ordered[1] == found[1], "the translation of an empty line"
