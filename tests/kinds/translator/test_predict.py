"""Lines in, lines out."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from lexmill.base.errors import UserError
from lexmill.decoding.settings import BeamSearch
from lexmill.kinds.translator.predict import translate_lines
from tests.decoding.forced import score
from tests.decoding.naive import naive_beam, tiny

BEAM = BeamSearch(3, 0.6)


class Letters:
    """A tokenizer of the letters a to f; a space is no token."""

    def encode_batch(self, lines: list[str]) -> list[list[int]]:
        return [[5 + "abcdef".index(letter) for letter in line if letter != " "] for line in lines]

    def decode(self, ids: list[int]) -> str:
        return "".join("abcdef"[i - 5] for i in ids)


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
