"""The network: a pair of tokens is scored by the product of two vectors. Shape letters: P pairs, K negatives, D width.

Cost of a pair: 6 (1 + K) D FLOPs, forward and backward.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from lexmill.models.skip_gram.shape import Shape


class SkipGram(nn.Module):
    """Tells the contexts of a token from tokens drawn at random.

    Attributes:
        learns_from: what `forward` takes: pairs of the running text.
        embedding: the vectors v of the centres; these are the tokens' vectors.
        contexts: the vectors u of the contexts.
    """

    learns_from: Literal["pairs"] = "pairs"

    def __init__(self, shape: Shape, vocab_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, shape.d_model)
        self.contexts = nn.Embedding(vocab_size, shape.d_model)

    def forward(self, centres: Tensor, contexts: Tensor, negatives: Tensor) -> Tensor:
        """Return the sum over pairs of -log s(u_o v_c) - sum_k log s(-u_k v_c), s the logistic function, in nats.

        Equation 4 of Mikolov et al. 2013, "Distributed Representations of Words and Phrases", with its sign turned.

        Args:
            centres, contexts: (P,) int64.
            negatives: (P, K) int64.
        """
        centre = self.embedding(centres)  # (P, D)
        right = (centre * self.contexts(contexts)).sum(dim=1)  # (P,)
        wrong = torch.einsum("pd,pkd->pk", centre, self.contexts(negatives))
        return -(logsigmoid(right.float()).sum() + logsigmoid(-wrong.float()).sum())
