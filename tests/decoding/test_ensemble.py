"""An ensemble beside the mean of its members' probabilities by hand."""

from __future__ import annotations

import pytest
import torch

from lexmill.decoding.batching import pad_sources
from lexmill.decoding.beam_search import beam_search
from lexmill.decoding.ensemble import Ensemble
from lexmill.decoding.settings import BeamSearch
from tests.decoding.forced import score
from tests.decoding.naive import naive_beam, next_log_probabilities, sentences, tiny
from tests.models.test_families import V, made

CPU = torch.device("cpu")


def test_its_probabilities_are_the_mean() -> None:
    members = [tiny(seed) for seed in (1, 2, 3)]
    source, written = sentences([4])[0], (7, 8, 5)
    by_hand = torch.stack([next_log_probabilities(one, source, written).exp() for one in members]).mean(0)
    found = next_log_probabilities(Ensemble(members), source, written).exp()
    torch.testing.assert_close(found, by_hand, rtol=1e-5, atol=1e-7)


def test_a_search_of_it_is_the_naive_search_of_the_mean() -> None:
    module, search = Ensemble([tiny(1), tiny(2), tiny(1)]), BeamSearch(4, 0.6, max_length_ratio=1.5, max_length_extra=3)
    sources = sentences([6, 1, 3, 8])
    for source, found in zip(sources, beam_search(module, *pad_sources(sources, CPU), search, 4), strict=True):
        expected = naive_beam(module, source, search, 4)
        assert [one.tokens for one in found] == [tokens for tokens, _ in expected]
        assert [one.score for one in found] == pytest.approx([value for _, value in expected], abs=2e-5)


def test_families_may_be_mixed_and_the_shortest_bounds_all() -> None:
    names = ("rnn_seq2seq", "conv_seq2seq", "transformer", "transformer+4", "decoder_translator")
    members = [*map(made, names), tiny(1, positions=8, vocab=V)]
    module = Ensemble([one.eval() for one in members])
    assert module.max_positions == 8
    sources = sentences([6, 2, 4], vocab=V)
    for source, found in zip(sources, beam_search(module, *pad_sources(sources, CPU), BeamSearch(3), 3), strict=True):
        forced = score(module, [source] * 3, [one.tokens for one in found])
        assert [one.log_probability for one in found] == pytest.approx(forced, abs=1e-4)
        assert all(len(one.tokens) <= 7 for one in found)
