"""The one thing evaluation asks of a language model: log-probabilities of documents.

A network, an n-gram and a unigram table are scored alike through `Scorer`. `NetworkScorer` runs a causal
network over windows of its context: every target is predicted exactly once. Windows that do not overlap are the
cheapest, but the first target of one is predicted from one token of what came before it (the end token at the start of
a document). With an overlap of a half, every target has half a window before it, at twice the cost. A recurrent network
is read by the same windows, from a zero state each, as it was trained.

Shape letters: B windows in a batch, T time (at most the context), V vocabulary.
Cost: 1 / (1 - overlap) forward passes over the tokens; memory O(batch_tokens x V).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import nn

Floats = NDArray[np.float64]
Window = tuple[int, int, int, int]  # document, from and to in its stream, and from where on it is scored


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


def context_alone(context: int, overlap: float) -> int:
    """How many tokens at the start of a window are only context (but in a document's first): overlap * context, up."""
    return min(math.ceil(overlap * context - 1e-9), context - 1)


def window_positions(targets: int, context: int, overlap: float) -> NDArray[np.int64]:
    """Where in its window each target of a document stands, from 0: how many tokens before its own input it sees."""
    alone = context_alone(context, overlap)
    at = np.arange(targets)
    return np.where(at < context, at, alone + (at - context) % (context - alone))


class NetworkScorer:
    """A causal language model, `module(tokens: (B, T)) -> logits (B, T, V)`, as a `Scorer`.

    The figures do not depend on `batch_tokens`: windows are padded on the right, where a causal model cannot
    look, and the padding is never scored.

    Args:
        module: the model; put in evaluation mode while it scores.
        context: the longest window, at most what the model can read.
        eos_id: the end token, which also stands before each document, as in training.
        batch_tokens: most tokens in one forward pass (at least one window is run).
        overlap: share of a window that is only context, of tokens that the window before it scored.
    """

    def __init__(self, module: nn.Module, context: int, eos_id: int, batch_tokens: int, overlap: float = 0.0) -> None:
        self.module, self.context, self.eos_id, self.batch_tokens = module, context, eos_id, batch_tokens
        self.alone = context_alone(context, overlap)

    def log_probabilities(self, sequences: Sequence[Sequence[int]]) -> list[Floats]:
        import torch

        streams = [np.array([self.eos_id, *sequence, self.eos_id], dtype=np.int64) for sequence in sequences]
        found = [np.empty(len(stream) - 1) for stream in streams]
        windows = [window for document, stream in enumerate(streams) for window in self._windows(document, stream)]
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

    def _windows(self, document: int, stream: NDArray[np.int64]) -> Iterator[Window]:
        """A document's windows: each begins `alone` tokens before what it scores."""
        last = len(stream) - 1
        yield document, 0, min(self.context, last), 0
        for scored in range(self.context, last, self.context - self.alone):
            start = scored - self.alone
            yield document, start, min(start + self.context, last), scored

    def _batches(self, windows: list[Window]) -> list[list[Window]]:
        """Windows, in order of length, into batches of at most `batch_tokens` tokens with their padding."""
        batches: list[list[Window]] = []
        for window in windows:
            length = window[2] - window[1]
            if not batches or (len(batches[-1]) + 1) * length > self.batch_tokens:
                batches.append([])
            batches[-1].append(window)
        return batches

    def _score(self, batch: list[Window], streams: list[NDArray[np.int64]], found: list[Floats]) -> None:
        import torch
        from torch.nn import functional

        longest = max(stop - start for _, start, stop, _ in batch)
        inputs = np.full((len(batch), longest), self.eos_id, dtype=np.int64)  # (B, T)
        targets = np.full((len(batch), longest), -100, dtype=np.int64)  # (B, T)
        for row, (document, start, stop, _) in enumerate(batch):
            inputs[row, : stop - start] = streams[document][start:stop]
            targets[row, : stop - start] = streams[document][start + 1 : stop + 1]
        device = next(self.module.parameters()).device
        logits = self.module(torch.from_numpy(inputs).to(device))  # (B, T, V)
        nats = functional.cross_entropy(
            logits.float().flatten(0, 1), torch.from_numpy(targets).to(device).flatten(), reduction="none"
        )
        scores = -nats.view(len(batch), longest).double().cpu().numpy()
        for row, (document, start, stop, scored) in enumerate(batch):
            found[document][scored:stop] = scores[row, scored - start : stop - start]
