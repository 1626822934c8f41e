"""The network: the logarithm of a co-occurrence count is the product of two vectors. Shape letters: P cells, D width.

The paper's word vectors are w + w~, the sum of both matrices. Here that sum s is itself a parameter, the embedding, and
so is the difference a = w - w~; then w = (s + a) / 2 and w~ = (s - a) / 2, and nothing need be added up afterwards.
Cost of a cell: about 10 D FLOPs, forward and backward.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from lexmill.models.glove.shape import Shape


class GloVe(nn.Module):
    """A weighted least-squares fit of log co-occurrence counts.

    Attributes:
        learns_from: what `forward` takes: cells of the table of counts.
        embedding: s; these are the tokens' vectors.
        difference: a.
        bias, context_bias: b and b~, (V,).
    """

    learns_from: Literal["cells"] = "cells"

    def __init__(self, shape: Shape, vocab_size: int) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(vocab_size, shape.d_model)
        self.difference = nn.Embedding(vocab_size, shape.d_model)
        self.bias = nn.Parameter(torch.zeros(vocab_size))
        self.context_bias = nn.Parameter(torch.zeros(vocab_size))

    def forward(self, rows: Tensor, columns: Tensor, counts: Tensor) -> Tensor:
        """Return the sum over cells of f(X_ij) (w_i w~_j + b_i + b~_j - log X_ij)^2.

        Equations 8 and 9 of Pennington et al. 2014.

        Args:
            rows, columns: i and j, (P,) int64.
            counts: X_ij, (P,) float32, above 0.
        """
        word = (self.embedding(rows) + self.difference(rows)) / 2  # (P, D)
        context = (self.embedding(columns) - self.difference(columns)) / 2
        fitted = (word * context).sum(dim=1).float() + self.bias[rows] + self.context_bias[columns]  # (P,)
        weight = (counts / self.shape.x_max).clamp(max=1) ** self.shape.alpha
        return (weight * (fitted - counts.log()) ** 2).sum()
