"""Log-probabilities by a network: each target once, whatever the batches, the padding and the windows."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lexmill.evaluation.scoring import NetworkScorer

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


def slow(module: nn.Module, document: Sequence[int]) -> list[float]:
    """One target at a time, no padding: the window of the target, forward, the last position."""
    stream = [EOS, *document, EOS]
    found = []
    module.eval()
    for target in range(1, len(stream)):
        start = (target - 1) // CONTEXT * CONTEXT
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
