"""Log-probabilities of documents under a network mixed with n-grams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lexmill.evaluation.scoring import Floats, NetworkScorer, Scorer
from lexmill.models.common.mixture import Mixture


class MixtureScorer:
    """The mixture as a `Scorer`: the network's windows as given, the n-grams of the whole document before."""

    def __init__(self, module: Mixture, of_network: Scorer) -> None:
        self.module, self.of_network = module, of_network

    def log_probabilities(self, sequences: Sequence[Sequence[int]]) -> list[Floats]:
        found, module = [], self.module
        device = module.weights.device
        for document, scores in zip(sequences, self.of_network.log_probabilities(sequences), strict=True):
            of_network, tokens = torch.from_numpy(scores).exp(), stream(document, module.eos_id)
            parts, longest = module.parts(of_network.to(device), tokens.to(device))
            found.append((module.weights[longest] * parts).sum(dim=1).log().cpu().numpy())
        return found


def scorer_of(module: Any, eos_id: int, batch_tokens: int, overlap: float) -> Scorer:
    """Return the scorer of a language model, mixed with n-grams or not; arguments as of `NetworkScorer`."""
    if not isinstance(module, Mixture):
        return NetworkScorer(module, module.context, eos_id, batch_tokens, overlap)
    return MixtureScorer(module, NetworkScorer(module.network, module.context, eos_id, batch_tokens, overlap))


def stream(document: Sequence[int], eos_id: int) -> Tensor:
    """Return a document's token ids between two end tokens, (N + 1,)."""
    return torch.tensor([eos_id, *document, eos_id], dtype=torch.int64)
