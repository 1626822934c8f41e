"""Beam search beside a naive one, an exhaustive one, greedy search and forced decoding."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Literal

import pytest
import torch
from torch import nn

from lexmill.base.errors import UserError
from lexmill.decoding.batching import by_length, pad_sources
from lexmill.decoding.beam_search import Hypothesis, beam_search, largest, length_penalty
from lexmill.decoding.settings import BeamSearch
from lexmill.tokenizers.tokenizer import NEVER_WRITTEN
from tests.decoding.forced import score
from tests.decoding.naive import EOS, V, every_translation, greedy, naive_beam, sentences, tiny
from tests.models.test_families import made

CPU = torch.device("cpu")
Ranking = Literal["gnmt", "average", "word_reward"]


def search_all(
    module: nn.Module,
    sources: list[tuple[int, ...]],
    search: BeamSearch,
    n_best: int = 1,
    prefixes: list[tuple[int, ...]] | None = None,
) -> list[list[Hypothesis]]:
    return beam_search(module, *pad_sources(sources, CPU), search, n_best, prefixes=prefixes)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
@pytest.mark.parametrize("beam_size", [1, 2, 5])
def test_it_finds_what_the_naive_search_finds(beam_size: int, alpha: float) -> None:
    search = BeamSearch(beam_size, alpha, max_length_ratio=1.5, max_length_extra=3)
    sources = sentences([1, 4, 6, 2, 6, 3, 0])
    for seed in range(3):
        module = tiny(seed)
        for source, found in zip(sources, search_all(module, sources, search, beam_size), strict=True):
            expected = naive_beam(module, source, search, beam_size)
            assert [one.tokens for one in found] == [tokens for tokens, _ in expected]
            assert [one.score for one in found] == pytest.approx([score for _, score in expected], rel=2e-6, abs=1e-5)


RANKINGS = [("gnmt", 3.0), ("average", 0.0), ("average", 1.0), ("word_reward", 0.5), ("word_reward", 2.5)]
SETTINGS: list[dict[str, Any]] = [
    *({"ranking": ranking, "length_penalty": strength} for ranking, strength in RANKINGS),
    {"coverage_penalty": 0.7},
    {"coverage_penalty": 3.0, "ranking": "average", "length_penalty": 1.0},
    {"min_length_ratio": 0.8},
    {"no_repeat_ngram": 1, "min_length_ratio": 1.5},  # six words at most: where none is left, it ends
    {"no_repeat_ngram": 2},
    {"no_repeat_ngram": 3, "min_length_ratio": 1.2, "ranking": "average", "length_penalty": 1.0},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: "-".join(map(str, settings.values())))
@pytest.mark.parametrize("beam_size", [1, 4])
def test_it_finds_what_the_naive_search_finds_under_each_setting(beam_size: int, settings: dict[str, Any]) -> None:
    search = BeamSearch(beam_size, **{"max_length_ratio": 1.5, "max_length_extra": 3, **settings})
    sources = sentences([1, 6, 2, 3, 0, 8])
    prefixes = [(), (7,), (5, 5, 5), (), (6, 6), (9, 8, 7)]
    module = tiny(1)
    for starts in (None, prefixes):
        results = search_all(module, sources, search, beam_size, starts)
        for i, found in enumerate(results):
            expected = naive_beam(module, sources[i], search, beam_size, starts[i] if starts else ())
            assert [one.tokens for one in found] == [tokens for tokens, _ in expected]
            assert [one.score for one in found] == pytest.approx([score for _, score in expected], abs=2e-5)


@pytest.mark.parametrize(("ranking", "strength"), RANKINGS)
def test_more_of_a_search_begins_with_fewer_of_it(ranking: Ranking, strength: float) -> None:
    """So it also stops no search before the best is found."""
    search = BeamSearch(5, strength, ranking=ranking)
    for seed in range(4):
        module, sources = tiny(seed), sentences([6, 3, 9])
        lists = [search_all(module, sources, search, n) for n in range(1, 6)]
        for fewer, more in pairwise(lists):
            for short, long in zip(fewer, more, strict=True):
                assert [one.tokens for one in short] == [one.tokens for one in long][: len(short)]
                assert len(long) == len(short) + 1


def test_a_reward_a_token_is_paid_for_the_tokens_that_a_live_hypothesis_may_still_write() -> None:
    module = Scripted([{EOS: 0.5, 5: 0.45}, {5: 0.9}, {5: 0.9}, {5: 0.9}, {EOS: 0.95}])
    for reward, expected in ((0.1, ()), (0.5, (5, 5, 5, 5))):
        search = BeamSearch(2, reward, ranking="word_reward")
        assert search_all(module, [(5, 5, 5)], search)[0][0].tokens == expected
    module = Scripted([{EOS: 0.9, 5: 0.05}, {5: 0.9}, {5: 0.9}, {5: 0.9}])
    search_all(module, [(5, 5, 5)], BeamSearch(4, 0.1, 2.0, 10, "word_reward"))
    assert module.steps == 1  # log 0.05 + 17 * 0.1 is less than log 0.9 + 0.1


def test_a_coverage_reorders_and_needs_attention() -> None:
    plain, wide = BeamSearch(5), BeamSearch(5, coverage_penalty=5.0)
    sources = sentences([6, 3, 9])
    found = [[[one.tokens for one in row] for row in search_all(tiny(1), sources, how, 5)] for how in (plain, wide)]
    assert found[0] != found[1]
    blind = made("rnn_seq2seq", attention="none").eval()
    with pytest.raises(UserError, match="coverage_penalty: this model's decoder has no attention"):
        search_all(blind, sources, wide)


def test_a_beginning_that_does_not_fit_is_refused() -> None:
    module, search = tiny(positions=6), BeamSearch(2, max_length_ratio=0.1, max_length_extra=0)
    assert search_all(module, [(5,)], search, prefixes=[(7,) * 5])[0][0].tokens == (7,) * 5
    with pytest.raises(UserError, match="has 6 tokens; the model writes at most 5"):
        search_all(module, [(5,)], search, prefixes=[(7,) * 6])


@pytest.mark.parametrize("alpha", [0.0, 1.0, 3.0])
def test_a_beam_as_wide_as_the_space_finds_the_best_of_all_translations(alpha: float) -> None:
    module, source = tiny(4), sentences([3])[0]
    space = every_translation(2)
    search = BeamSearch(64, alpha, max_length_ratio=0.1, max_length_extra=2)
    totals = score(module, [source] * len(space), space)
    ranked = sorted(
        ((total / length_penalty(len(row) + 1, alpha), row) for total, row in zip(totals, space, strict=True)),
        reverse=True,
    )
    found = search_all(module, [source], search, n_best=40)[0]
    assert len(space) == 43
    assert [one.tokens for one in found] == [row for _, row in ranked[:40]]


@pytest.mark.parametrize("beam_size", [1, 4])
def test_scores_are_those_of_forced_decoding(beam_size: int) -> None:
    module, sources = tiny(2), sentences([5, 2, 7, 1])
    search = BeamSearch(beam_size, 0.6)
    for source, found in zip(sources, search_all(module, sources, search, beam_size), strict=True):
        forced = score(module, [source] * len(found), [one.tokens for one in found], batch_tokens=8)
        # Sums of some thirty float32 terms, in two orders: each may be rounded by 2e-6.
        assert [one.log_probability for one in found] == pytest.approx(forced, rel=2e-6, abs=1e-5)
        penalties = [length_penalty(len(one.tokens) + 1, 0.6) for one in found]
        assert [one.score for one in found] == pytest.approx(
            [value / penalty for value, penalty in zip(forced, penalties, strict=True)], rel=2e-6, abs=1e-5
        )


def test_one_place_is_greedy_search() -> None:
    for seed in range(4):
        module, sources = tiny(seed), sentences([3, 6, 1], seed)
        search = BeamSearch(1, 0.6, max_length_ratio=1.0, max_length_extra=4)
        found = search_all(module, sources, search)
        assert [one[0].tokens for one in found] == [greedy(module, source, len(source) + 4) for source in sources]


def test_neighbours_and_padding_change_nothing() -> None:
    module, sources = tiny(1), sentences([9, 1, 4, 4, 7, 2, 11, 3])
    search = BeamSearch(3, 0.6)
    together = search_all(module, sources, search, 3)
    for source, found in zip(sources, together, strict=True):
        alone = search_all(module, [source], search, 3)[0]
        assert [one.tokens for one in alone] == [one.tokens for one in found]
        assert [one.score for one in alone] == pytest.approx([one.score for one in found], rel=2e-6, abs=1e-5)
    assert [[one.tokens for one in row] for row in search_all(module, sources[::-1], search, 3)[::-1]] == [
        [one.tokens for one in row] for row in together
    ]


def test_the_search_goes_on_while_the_length_penalty_could_still_reorder() -> None:
    """A finished hypothesis that leads by log-probability loses to a longer one under a strong penalty."""
    module = Scripted([{EOS: 0.5, 5: 0.45}, {5: 0.9}, {5: 0.9}, {5: 0.9}, {EOS: 0.95}])
    source = [(5, 5, 5)]
    short, long = (search_all(module, source, BeamSearch(2, alpha))[0][0] for alpha in (0.0, 1.5))
    assert short.tokens == ()
    assert long.tokens == (5, 5, 5, 5)


def test_a_sentence_whose_best_cannot_be_beaten_is_left() -> None:
    module = Scripted([{EOS: 0.9, 5: 0.05}, {5: 0.9}, {5: 0.9}, {5: 0.9}])
    assert search_all(module, [(5, 5, 5)], BeamSearch(4, 0.6, 2.0, 10))[0][0].tokens == ()
    assert module.steps == 1  # log 0.9 is out of reach even at the greatest length


def test_sentences_that_are_done_leave_the_batch() -> None:
    module = tiny(1)
    rows: list[int] = []
    decode = module.decode
    module.decode = lambda tokens, *rest: rows.append(len(tokens)) or decode(tokens, *rest)
    sources = sentences([8, 1, 1, 1])
    search_all(module, sources, BeamSearch(2, 0.0, max_length_ratio=1.0, max_length_extra=0))
    assert rows[0] == 8
    assert rows[-1] == 2
    assert rows == sorted(rows, reverse=True)


def test_the_longest_translation_is_bounded_and_still_ends_well() -> None:
    module = Scripted([{5: 0.99}])
    found = search_all(module, [(5,) * 3, (5,) * 30], BeamSearch(2, 0.6, max_length_ratio=1.5, max_length_extra=2))
    assert len(found[0][0].tokens) == 6
    assert len(found[1][0].tokens) == module.max_positions - 1
    assert all(EOS not in one.tokens for row in found for one in row)


def test_special_tokens_are_never_written() -> None:
    module = Scripted([{2: 0.3, 0: 0.3, 1: 0.2, 4: 0.1, 5: 0.05}, {EOS: 0.5, 4: 0.4}])
    found = search_all(module, [(5, 6)], BeamSearch(4, 0.6), 4)[0]
    assert not {token for one in found for token in one.tokens} & {EOS, *NEVER_WRITTEN}


def test_equal_scores_are_ordered_by_token() -> None:
    module = Scripted([{}])  # all tokens are equally probable, always
    found = search_all(module, [(5, 5)], BeamSearch(5, 0.0, max_length_ratio=0.1, max_length_extra=1), 5)[0]
    assert [one.tokens for one in found] == [(), (5,), (6,), (7,), (8,)]
    again = search_all(module, [(5, 5)] * 3, BeamSearch(5, 0.0, max_length_ratio=0.1, max_length_extra=1), 5)
    assert again == [found] * 3


def test_there_are_as_many_as_asked_for_or_all_there_are() -> None:
    module = tiny(0)
    found = search_all(module, sentences([3, 5]), BeamSearch(6, 0.6), 6)
    assert [len(row) for row in found] == [6, 6]
    assert all(len({one.tokens for one in row}) == 6 for row in found)
    few = search_all(module, sentences([3]), BeamSearch(20, 0.6, max_length_ratio=0.1, max_length_extra=1), 20)[0]
    assert {one.tokens for one in few} == {(), *((word,) for word in range(5, V))}


def test_nothing_and_nonsense() -> None:
    empty = torch.zeros(0, 4, dtype=torch.int64)
    assert beam_search(tiny(), empty, empty.bool(), BeamSearch()) == []
    with pytest.raises(ValueError, match="n_best is 5"):
        search_all(tiny(), sentences([2]), BeamSearch(4), 5)


def test_largest_is_a_stable_sort() -> None:
    torch.manual_seed(0)
    for count in (1, 3, 8, 40):
        values = torch.randint(0, 6, (50, 20)).float()
        values[::7] = -torch.inf
        found, index = largest(values, count)
        expected = values.sort(dim=1, descending=True, stable=True)
        assert torch.equal(found, expected.values[:, :count])
        assert torch.equal(index, expected.indices[:, :count])


def test_groups_are_of_like_length_and_complete() -> None:
    lengths = [3, 9, 1, 4, 4, 100, 2]
    groups = list(by_length(lengths, 12))
    assert sorted(i for group in groups for i in group) == list(range(7))
    assert groups[0] == [5]
    assert all(len(group) * max(lengths[i] for i in group) <= 12 for group in groups[1:])


class Scripted(nn.Module):
    """A translator whose next-token probabilities depend on the position alone; what is not named shares the rest."""

    max_positions = 24

    def __init__(self, script: list[dict[int, float]]) -> None:
        super().__init__()
        self.script, self.steps = script, 0

    def encode(self, source: torch.Tensor, source_mask: torch.Tensor) -> torch.Tensor:
        return torch.zeros(*source.shape, 1)

    def new_cache(self, memory: torch.Tensor, source_mask: torch.Tensor) -> Scripted:
        self.steps = 0
        return self

    def reorder(self, rows: torch.Tensor, sources: torch.Tensor | None = None) -> None:
        pass

    def decode(self, target_in: torch.Tensor, *_: object) -> torch.Tensor:
        named = self.script[min(self.steps, len(self.script) - 1)]
        self.steps += 1
        rest = (1 - sum(named.values())) / (V - len(named))
        row = torch.tensor([named.get(token, rest) for token in range(V)]).clamp(min=1e-9).log()
        return row.expand(len(target_in), 1, V).clone()
