"""The one thing evaluation asks of a language model: log-probabilities of documents.

A network, an n-gram and a unigram table are scored alike through `Scorer`. `NetworkScorer` runs a causal
network over non-overlapping windows of its context: every target is predicted exactly once, the first one of a
window from one token of what came before it (the end token at the start of a document).

Shape letters: B windows in a batch, T time (at most the context), V vocabulary.
Cost: one forward pass over the tokens; memory O(batch_tokens x V).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import nn

Floats = NDArray[np.float64]


class Scorer(Protocol):
    """Log-probabilities of token sequences."""

    def log_probabilities(self, sequences: Sequence[Sequence[int]]) -> list[Floats]:
        """Natural logarithms of the probability of each token of each document, then of its end token.

        Args:
            sequences: documents as token ids, without an end token.

        Returns:
            One array a document, one longer than the document.
        """
        ...


class NetworkScorer:
    """A causal language model, `module(tokens: (B, T)) -> logits (B, T, V)`, as a `Scorer`.

    The figures do not depend on `batch_tokens`: windows are padded on the right, where a causal model cannot
    look, and the padding is never scored.

    Args:
        module: the model; put in evaluation mode while it scores.
        context: the longest window, at most what the model can read.
        eos_id: the end token, which also stands before each document, as in training.
        batch_tokens: most tokens in one forward pass (at least one window is run).
    """

    def __init__(self, module: nn.Module, context: int, eos_id: int, batch_tokens: int) -> None:
        self.module, self.context, self.eos_id, self.batch_tokens = module, context, eos_id, batch_tokens

    def log_probabilities(self, sequences: Sequence[Sequence[int]]) -> list[Floats]:
        import torch

        streams = [np.array([self.eos_id, *sequence, self.eos_id], dtype=np.int64) for sequence in sequences]
        found = [np.empty(len(stream) - 1) for stream in streams]
        windows = [
            (document, start, min(start + self.context, len(stream) - 1))
            for document, stream in enumerate(streams)
            for start in range(0, len(stream) - 1, self.context)
        ]
        windows.sort(key=lambda window: window[2] - window[1])
        was_training = self.module.training
        self.module.eval()
        try:
            with torch.inference_mode():
                for batch in self._batches(windows):
                    self._score(batch, streams, found)
        finally:
            self.module.train(was_training)
        return found

    def _batches(self, windows: list[tuple[int, int, int]]) -> list[list[tuple[int, int, int]]]:
        """Windows, in order of length, into batches of at most `batch_tokens` tokens with their padding."""
        batches: list[list[tuple[int, int, int]]] = []
        for window in windows:
            length = window[2] - window[1]
            if not batches or (len(batches[-1]) + 1) * length > self.batch_tokens:
                batches.append([])
            batches[-1].append(window)
        return batches

    def _score(self, batch: list[tuple[int, int, int]], streams: list[NDArray[np.int64]], found: list[Floats]) -> None:
        import torch
        from torch.nn import functional

        longest = max(stop - start for _, start, stop in batch)
        inputs = np.full((len(batch), longest), self.eos_id, dtype=np.int64)  # (B, T)
        targets = np.full((len(batch), longest), -100, dtype=np.int64)  # (B, T)
        for row, (document, start, stop) in enumerate(batch):
            inputs[row, : stop - start] = streams[document][start:stop]
            targets[row, : stop - start] = streams[document][start + 1 : stop + 1]
        device = next(self.module.parameters()).device
        logits = self.module(torch.from_numpy(inputs).to(device))  # (B, T, V)
        nats = functional.cross_entropy(
            logits.float().flatten(0, 1), torch.from_numpy(targets).to(device).flatten(), reduction="none"
        )
        scores = -nats.view(len(batch), longest).double().cpu().numpy()
        for row, (document, start, stop) in enumerate(batch):
            found[document][start:stop] = scores[row, : stop - start]
