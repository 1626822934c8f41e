"""The filters beside transformers' logits processors, and the draw beside the probabilities."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lexmill.base.errors import UserError
from lexmill.decoding import choosing
from lexmill.decoding.choosing import next_tokens, penalise
from lexmill.decoding.settings import Sampling


def kept(logits: Tensor, sampling: Sampling) -> Tensor:
    """Which tokens can be drawn: (B, V) bool, by drawing on a fine grid."""
    steps = torch.arange(0, 1, 1 / 4096, dtype=torch.float64)
    found = torch.zeros(logits.shape, dtype=torch.bool)
    for row, mark in zip(logits, found, strict=True):
        mark[next_tokens(row.expand(len(steps), -1), steps, sampling)] = True
    return found


FILTERS = [
    Sampling(temperature=0.7),
    Sampling(temperature=1.0, top_k=5),
    Sampling(temperature=1.0, top_p=0.7),
    Sampling(temperature=1.0, min_p=0.2),
    Sampling(temperature=1.6, top_k=9, top_p=0.8, min_p=0.15, repetition_penalty=1.4),
    Sampling(temperature=0.5, top_p=0.95, repetition_penalty=0.8),
]


@pytest.mark.parametrize("sampling", FILTERS, ids=str)
def test_the_filters_are_those_of_transformers_in_their_order(sampling: Sampling) -> None:
    from transformers.generation import logits_process as peer

    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(6, 24, generator=generator) * 2
    tokens = torch.randint(1, 24, (6, 7), generator=generator)
    theirs = logits.clone()
    if sampling.repetition_penalty != 1:
        theirs = peer.RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty)(tokens, theirs)
        penalise(logits, tokens, sampling.repetition_penalty, eos=0)
        torch.testing.assert_close(logits, theirs)
    theirs = peer.TemperatureLogitsWarper(sampling.temperature)(tokens, theirs)
    if sampling.top_k:
        theirs = peer.TopKLogitsWarper(sampling.top_k)(tokens, theirs)
    if sampling.top_p < 1:
        theirs = peer.TopPLogitsWarper(sampling.top_p)(tokens, theirs)
    if sampling.min_p:
        theirs = peer.MinPLogitsWarper(sampling.min_p)(tokens, theirs)
    probability = theirs.softmax(dim=1)
    # A token drawn with less than the grid's step may be missed.
    assert (kept(logits, sampling) & (probability == 0)).sum() == 0
    assert ((probability > 1 / 4096) & ~kept(logits, sampling)).sum() == 0
    draws = torch.rand(40_000, generator=generator, dtype=torch.float64)
    counts = Counter(next_tokens(logits[:1].expand(len(draws), -1), draws, sampling).tolist())
    for token, wanted in enumerate(probability[0].tolist()):
        assert counts[token] / len(draws) == pytest.approx(wanted, abs=0.012)


def test_the_penalty_by_hand_leaves_the_end_token() -> None:
    logits = torch.tensor([[3.0, 2.0, -2.0, 1.0], [3.0, 2.0, -2.0, -torch.inf]])
    penalise(logits, torch.tensor([[0, 1, 2, 2], [0, 3, 3, 3]]), 2.0, eos=0)
    assert logits.tolist() == [[3.0, 1.0, -4.0, 1.0], [3.0, 2.0, -2.0, -torch.inf]]


def test_the_number_falls_into_shares_laid_end_to_end_by_id() -> None:
    logits = torch.tensor([0.2, 0.5, 0.3]).log().expand(7, 3)
    draws = torch.tensor([0.0, 0.19, 0.21, 0.69, 0.71, 0.999, 1 - 2**-53], dtype=torch.float64)
    assert next_tokens(logits, draws, Sampling(temperature=1.0)).tolist() == [0, 0, 1, 1, 2, 2, 2]
    assert next_tokens(logits, draws, Sampling(temperature=1.0, top_k=2)).tolist() == [1, 1, 1, 2, 2, 2, 2]
    assert next_tokens(logits, draws, Sampling(temperature=1e-300)).tolist() == [1] * 7
    assert next_tokens(logits, None, Sampling(temperature=0)).tolist() == [1] * 7


def test_the_last_tokens_are_drawn_only_where_something_is_left_of_them() -> None:
    logits = torch.tensor([[0.0, 0.0, -torch.inf, -torch.inf]])
    highest = torch.tensor([1 - 2**-53], dtype=torch.float64)
    for sampling in (Sampling(temperature=1.0), Sampling(temperature=1.0, top_p=0.4), Sampling(top_k=3, top_p=0.9)):
        assert next_tokens(logits, highest, sampling).item() < 2


def test_top_p_looks_at_the_whole_vocabulary_only_where_it_must(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 40, generator=generator)
    draws = torch.rand(3, generator=generator, dtype=torch.float64)
    sorted_whole = [next_tokens(logits, draws, Sampling(temperature=1.0, top_p=p)) for p in (0.05, 0.3, 0.9)]
    monkeypatch.setattr(choosing, "_CANDIDATES", 4)
    few = [next_tokens(logits, draws, Sampling(temperature=1.0, top_p=p)) for p in (0.05, 0.3, 0.9)]
    assert all(one.equal(other) for one, other in zip(sorted_whole, few, strict=True))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 6), st.floats(0.01, 1.0), st.floats(0, 0.5), st.floats(0, 0.999999))
def test_what_was_cut_off_is_never_drawn(seed: int, top_k: int, top_p: float, min_p: float, number: float) -> None:
    torch.manual_seed(seed)
    logits = torch.randn(1, 6) * 3
    sampling = Sampling(temperature=1.0, top_k=top_k, top_p=top_p, min_p=min_p)
    token = int(next_tokens(logits, torch.tensor([number], dtype=torch.float64), sampling))
    order = logits[0].double().sort(descending=True, stable=True)
    rank = order.indices.tolist().index(token)
    assert not top_k or rank < top_k
    left = order.values[:top_k].softmax(0) if top_k else order.values.softmax(0)
    assert float(left[:rank].sum()) < top_p + 1e-6  # the more probable ones did not reach it yet
    assert float(left[rank]) >= min_p * float(left[0]) - 1e-6


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_one_broken_row_is_reported(bad: float, temperature: float) -> None:
    logits = torch.zeros(3, 5)
    logits[1, 3] = bad
    with pytest.raises(UserError, match="not finite"):
        next_tokens(logits, torch.zeros(3, dtype=torch.float64), Sampling(temperature=temperature))
    with pytest.raises(UserError, match="not finite"):
        next_tokens(torch.full((1, 3), -torch.inf), torch.zeros(1).double(), Sampling(temperature=temperature))
