"""A search for phrases beside the exhaustive one, and beside the plain one where there are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from lexmill import tokenizers
from lexmill.base.errors import UserError
from lexmill.decoding.batching import pad_sources
from lexmill.decoding.beam_search import Hypothesis, beam_search, length_penalty
from lexmill.decoding.constrained import Phrase, constrained_search, needed, spelt
from lexmill.decoding.settings import BeamSearch
from lexmill.tokenizers.kinds import assemble, byte_model
from lexmill.tokenizers.saving import save
from tests.decoding.forced import score
from tests.decoding.naive import every_translation, sentences, tiny
from tests.decoding.test_beam_search import CPU

Tokens = tuple[int, ...]


def phrase(*tokens: int, first: Tokens = ()) -> Phrase:
    return Phrase(tokens, first or tokens)


def has(tokens: Tokens, one: Phrase) -> bool:
    inside = any(tokens[i : i + len(one.inside)] == one.inside for i in range(len(tokens)))
    return inside or tokens[: len(one.first)] == one.first


def found(
    source: Tokens, search: BeamSearch, phrases: list[Phrase], n_best: int = 1, seed: int = 1, **more: Tokens
) -> list[Hypothesis]:
    return constrained_search(tiny(seed), *pad_sources([source], CPU), search, phrases, n_best=n_best, **more)


@pytest.mark.parametrize(
    "phrases",
    [
        [phrase(7)],
        [phrase(6, 8)],
        [phrase(5), phrase(9)],
        [Phrase((8, 8, 9), (10,))],  # short at the beginning, longer elsewhere
    ],
)
def test_a_beam_as_wide_as_the_space_finds_the_best_of_all_with_the_phrases(phrases: list[Phrase]) -> None:
    source, search = sentences([3])[0], BeamSearch(300, 0.6, max_length_ratio=0.1, max_length_extra=3)
    longest = max(3, needed(phrases, ())[0])
    space = [row for row in every_translation(longest) if all(has(row, one) for one in phrases)]
    totals = score(tiny(1), [source] * len(space), space)
    expected = sorted(
        ((total / length_penalty(len(row) + 1, 0.6), row) for total, row in zip(totals, space, strict=True)),
        reverse=True,
    )
    ours = found(source, search, phrases, 5)
    assert [one.tokens for one in ours] == [row for _, row in expected[:5]]
    assert [one.score for one in ours] == pytest.approx([value for value, _ in expected[:5]], abs=1e-5)


@pytest.mark.parametrize("beam_size", [1, 2, 5])
def test_a_narrow_beam_has_the_phrases_too_with_the_scores_of_forced_decoding(beam_size: int) -> None:
    phrases = [phrase(7, 7, 9), phrase(10, first=(5,)), phrase(9, 6)]  # the first and the last may overlap
    for seed in range(4):
        for source in sentences([6, 2, 9, 1], seed):
            ours = found(source, BeamSearch(beam_size), phrases, beam_size, seed)
            assert ours
            assert all(has(one.tokens, each) for one in ours for each in phrases)
            forced = score(tiny(seed), [source] * len(ours), [one.tokens for one in ours])
            assert [one.log_probability for one in ours] == pytest.approx(forced, abs=1e-4)


@pytest.mark.parametrize(
    "search", [BeamSearch(1), BeamSearch(4), BeamSearch(4, no_repeat_ngram=2, coverage_penalty=0.7, ranking="average")]
)
def test_without_phrases_it_is_the_plain_search(search: BeamSearch) -> None:
    for source in sentences([5, 1, 8]):
        for prefix in ((), (7, 6)):
            (plain,) = beam_search(tiny(1), *pad_sources([source], CPU), search, search.beam_size, prefixes=[prefix])
            ours = found(source, search, [], search.beam_size, prefix=prefix)
            assert [one.tokens for one in ours] == [one.tokens for one in plain]
            assert [one.score for one in ours] == pytest.approx([one.score for one in plain], abs=1e-5)


def test_what_is_needed() -> None:
    both = [phrase(5, 6, 7), phrase(8)]
    assert needed(both, ()) == (4, {5, 8})
    assert needed(both, (9, 5, 6)) == (2, {5, 7, 8})
    assert needed(both, (5, 6, 7, 8)) == (0, set())
    assert needed([Phrase((5, 6, 7), (9, 7))], (9,)) == (1, {5, 7})
    assert needed([phrase(5, 5, 6)], (5, 5, 5)) == (1, {5, 6})


def test_a_beginning_may_hold_a_phrase_and_what_does_not_fit_is_refused() -> None:
    (one,) = found((5, 6), BeamSearch(2), [phrase(9, 8)], prefix=(7, 9))
    assert one.tokens[:2] == (7, 9)
    assert has(one.tokens, phrase(9, 8))
    with pytest.raises(UserError, match="the phrases of a translation have 24 tokens; the model writes at most 23"):
        found((5,), BeamSearch(2), [phrase(*[7] * 24)])


@pytest.mark.parametrize(("text", "before"), [("Strom", " "), ("\u7535\u6e90", "")])
def test_a_phrase_follows_a_space_where_its_script_has_them(tmp_path: Path, text: str, before: str) -> None:
    save(assemble("byte", byte_model(), lowercase=False), tmp_path)
    tokenizer = tokenizers.load(tmp_path)
    phrase = spelt(tokenizer, text)
    assert tokenizer.decode(list(phrase.inside)) == before + text
    assert tokenizer.decode(list(phrase.first)) == text
