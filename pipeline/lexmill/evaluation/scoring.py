"""Log-probabilities of documents, the interface between evaluation and language models.

A network, an n-gram and a unigram table are scored alike through `Scorer`. `NetworkScorer` runs a causal network over
windows of its context: every target is predicted exactly once. Windows without overlap are the cheapest, but the first
target of each is predicted from only one token (the end token at the start of a document). With an overlap of a half,
every target has half a window before it, at twice the cost. A recurrent network starts each window from a zero state,
as in training.

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
Window = tuple[int, int, int, int]  # document, start and stop in its stream, start of the scored part


class Scorer(Protocol):
    """Log-probabilities of token sequences."""

    def log_probabilities(self, sequences: Sequence[Sequence[int]]) -> list[Floats]:
        """The natural log-probability of each token of each document, then of its end token.

        Args:
            sequences: documents as token ids, without an end token.

        Returns:
            One array a document, one longer than the document.
        """


def context_alone(context: int, overlap: float) -> int:
    """The tokens at the start of a window (but a document's first) that are only context: overlap * context, up."""
    return min(math.ceil(overlap * context - 1e-9), context - 1)


def window_positions(targets: int, context: int, overlap: float) -> NDArray[np.int64]:
    """The position of each target of a document in its window, from 0: the number of tokens before its own input."""
    alone = context_alone(context, overlap)
    at = np.arange(targets)
    return np.where(at < context, at, alone + (at - context) % (context - alone))


class NetworkScorer:
    """A causal language model, `module(tokens: (B, T)) -> logits (B, T, V)`, as a `Scorer`.

    The metrics do not depend on `batch_tokens`: windows are padded on the right, invisible to a causal model, and the
    padding is not scored.

    Args:
        module: the model; in evaluation mode while it scores.
        context: the longest window, at most that of the model.
        eos_id: the end token, which also precedes each document, as in training.
        batch_tokens: the maximum number of tokens in one forward pass (but at least one window).
        overlap: the share of a window that is only context, scored in the window before.
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
        """A document's windows: each begins `alone` tokens before its scored part."""
        last = len(stream) - 1
        yield document, 0, min(self.context, last), 0
        for scored in range(self.context, last, self.context - self.alone):
            start = scored - self.alone
            yield document, start, min(start + self.context, last), scored

    def _batches(self, windows: list[Window]) -> list[list[Window]]:
        """Group windows, in order of length, into batches of at most `batch_tokens` tokens with padding."""
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
