"""Drawn translations beside the probabilities of the whole forward pass."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch

from lexmill.decoding.batching import pad_sources
from lexmill.decoding.beam_search import Hypothesis, ranked
from lexmill.decoding.drawn_translations import draw_translations
from lexmill.decoding.settings import BeamSearch, Sampling
from tests.decoding.forced import score
from tests.decoding.naive import EOS, V, greedy, may_follow, next_log_probabilities, sentences, tiny

CPU = torch.device("cpu")
SEARCH = BeamSearch(1, 0.6, max_length_ratio=1.0, max_length_extra=4)


def drawn(
    sources: list[tuple[int, ...]],
    sampling: Sampling,
    streams: list[str],
    search: BeamSearch = SEARCH,
    prefixes: list[tuple[int, ...]] | None = None,
) -> list[Hypothesis]:
    source, mask = pad_sources(sources, CPU)
    return draw_translations(tiny(2), source, mask, search, sampling, streams=streams, prefixes=prefixes)


def test_temperature_0_is_greedy() -> None:
    sources = sentences([3, 7, 1, 5])
    found = drawn(sources, Sampling(temperature=0), [])
    assert [one.tokens for one in found] == [greedy(tiny(2), source, len(source) + 4) for source in sources]
    one_of_many = drawn(sources, Sampling(temperature=1.0, top_k=1), ["a", "b", "c", "d"])
    assert [one.tokens for one in one_of_many] == [one.tokens for one in found]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_scores_are_those_of_forced_decoding_whatever_the_temperature(temperature: float) -> None:
    sources = sentences([3, 7, 1, 5])
    found = drawn(sources, Sampling(temperature=temperature), list("abcd"))
    forced = score(tiny(2), sources, [one.tokens for one in found])
    assert [one.log_probability for one in found] == pytest.approx(forced, abs=2e-5)
    assert [one.score for one in found] == [ranked(one.log_probability, len(one.tokens) + 1, SEARCH) for one in found]


def test_a_draw_depends_on_its_source_and_stream_alone() -> None:
    sources, streams = sentences([3, 7, 1, 5, 7]), ["1 a", "1 b", "1 c", "1 d", "2 b"]
    sources[4] = sources[1]
    sampling = Sampling(temperature=1.5, max_tokens=2)  # translations may be longer: numbers are drawn on
    together = drawn(sources, sampling, streams)
    assert together[1].tokens != together[4].tokens
    for i, one in enumerate(together):
        assert drawn([sources[i]], sampling, [streams[i]])[0].tokens == one.tokens
    assert [one.tokens for one in drawn(sources[::-1], sampling, streams[::-1])] == [
        one.tokens for one in together[::-1]
    ]
    empty = torch.zeros(0, 4, dtype=torch.int64)
    assert draw_translations(tiny(2), empty, empty.bool(), SEARCH, sampling, streams=[]) == []


def test_draws_have_the_probabilities_of_the_model() -> None:
    source, count = sentences([3])[0], 3000
    search = BeamSearch(1, max_length_ratio=0.1, max_length_extra=1)
    found = drawn([source] * count, Sampling(temperature=1.0), [str(i) for i in range(count)], search)
    # At the maximum length only the end may follow, so a word counts with its own probability.
    first = next_log_probabilities(tiny(2), source, ()).exp()
    expected = {(): float(first[EOS])} | {(word,): float(first[word]) for word in range(5, V)}
    seen, mass = Counter(one.tokens for one in found), sum(expected.values())
    assert seen.keys() <= expected.keys()
    for row, value in expected.items():
        share = value / mass
        assert seen[row] / count == pytest.approx(share, abs=4 * math.sqrt(share / count) + 0.001)


def test_the_limits_of_a_search_hold_for_draws() -> None:
    search = BeamSearch(1, max_length_ratio=1.5, max_length_extra=2, min_length_ratio=1.0, no_repeat_ngram=2)
    sources, prefixes = sentences([3, 6, 2, 6]), [(), (7, 8), (6,), ()]
    found = drawn(sources, Sampling(temperature=2.0), list("abcd"), search, prefixes)
    for source, start, one in zip(sources, prefixes, found, strict=True):
        for i, token in enumerate((*one.tokens, EOS)):
            assert token in may_follow(source, one.tokens[:i], search, start)
