"""Log-probabilities by a network: each target once, whatever the batches, the padding and the windows."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from lexmill.evaluation.scoring import NetworkScorer, window_positions

EOS, VOCABULARY, CONTEXT = 3, 11, 8


class CausalMean(nn.Module):
    """A tiny causal network: each position's logits come from the mean of the embeddings so far."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(VOCABULARY, 16)
        self.out = nn.Linear(16, VOCABULARY)
        self.dropout = nn.Dropout(0.5)
        self.shapes: list[tuple[int, ...]] = []

    def forward(self, tokens: Tensor) -> Tensor:
        self.shapes.append(tuple(tokens.shape))
        hidden = self.embedding(tokens).cumsum(1) / torch.arange(1, tokens.shape[1] + 1)[None, :, None]
        return self.out(self.dropout(hidden))


def slow(module: nn.Module, document: Sequence[int], alone: int = 0) -> list[float]:
    """One target at a time, no padding: the window of the target, forward, the last position.

    After the first, a window is moved on by CONTEXT - alone when it is full.
    """
    stream = [EOS, *document, EOS]
    found = []
    module.eval()
    for target in range(1, len(stream)):
        start = 0
        while target - start > CONTEXT:
            start += CONTEXT - alone
        logits = module(torch.tensor([stream[start:target]])).detach()[0, -1]
        found.append(float(torch.log_softmax(logits, -1)[stream[target]]))
    return found


DOCUMENTS = [
    [int(token) for token in np.random.default_rng(1).integers(4, VOCABULARY, length)]
    for length in (0, 1, 7, 8, 9, 16, 30, 3)
]


@pytest.mark.parametrize("batch_tokens", [1, 8, 20, 1000])
def test_equal_to_one_target_at_a_time_for_any_batch(batch_tokens: int) -> None:
    module = CausalMean()
    found = NetworkScorer(module, CONTEXT, EOS, batch_tokens).log_probabilities(DOCUMENTS)
    for document, values in zip(DOCUMENTS, found, strict=True):
        assert len(values) == len(document) + 1
        assert values == pytest.approx(slow(module, document), abs=1e-5)


@pytest.mark.parametrize(("overlap", "alone"), [(0.0, 0), (0.25, 2), (0.5, 4), (0.51, 5), (0.99, 7)])
@pytest.mark.parametrize("batch_tokens", [1, 20, 1000])
def test_overlapping_windows_score_each_target_once_with_its_context(
    overlap: float, alone: int, batch_tokens: int
) -> None:
    module = CausalMean()
    found = NetworkScorer(module, CONTEXT, EOS, batch_tokens, overlap).log_probabilities(DOCUMENTS)
    for document, values in zip(DOCUMENTS, found, strict=True):
        assert len(values) == len(document) + 1
        assert values == pytest.approx(slow(module, document, alone), abs=1e-5)


@given(targets=st.integers(1, 60), context=st.integers(1, 12), overlap=st.floats(0, 0.99))
def test_every_target_has_the_share_of_the_window_before_it(targets: int, context: int, overlap: float) -> None:
    positions = window_positions(targets, context, overlap)
    wanted = np.minimum(np.arange(targets), min(overlap * context - 1e-6, context - 1))
    assert (positions >= wanted).all()
    assert positions.max() < context
    assert positions[:context].tolist() == list(range(min(targets, context)))
    if overlap == 0:
        assert positions.tolist() == [at % context for at in range(targets)]


def test_positions_are_those_of_the_windows() -> None:
    """A network that tells how many tokens it sees: its log-probabilities are the positions."""

    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(1))

        def forward(self, tokens: Tensor) -> Tensor:
            seen = torch.arange(tokens.shape[1], dtype=torch.float32)  # log odds of token 0: the position
            logits = torch.zeros(*tokens.shape, 2)
            logits[..., 0] = seen
            return logits + self.weight

    for overlap in (0.0, 0.3, 0.5, 0.9):
        (found,) = NetworkScorer(Counter(), CONTEXT, 0, 64, overlap).log_probabilities([[0] * 40])
        seen = -np.log(np.exp(-found) - 1)  # the logit back from its log-sigmoid
        assert seen == pytest.approx(window_positions(41, CONTEXT, overlap), abs=1e-2)


def test_batches_stay_within_the_bound_or_hold_one_window() -> None:
    module = CausalMean()
    NetworkScorer(module, CONTEXT, EOS, 20).log_probabilities(DOCUMENTS)
    assert all(rows * width <= 20 or rows == 1 for rows, width in module.shapes)
    assert max(width for _, width in module.shapes) == CONTEXT


def test_dropout_is_off_while_scoring_and_the_mode_is_put_back() -> None:
    module = CausalMean().train()
    scorer = NetworkScorer(module, CONTEXT, EOS, 64)
    first, second = scorer.log_probabilities([[5, 6, 7]]), scorer.log_probabilities([[5, 6, 7]])
    assert first[0].tolist() == second[0].tolist()
    assert module.training


def test_no_documents() -> None:
    assert NetworkScorer(CausalMean(), CONTEXT, EOS, 64).log_probabilities([]) == []
