"""Embeddings of the last few tokens together, looked up by a hash: what an n-gram knows, for the cost of a look-up.

Each n-gram that ends at a position picks a row of its order's table; n-grams of one hash share a row (Svenstrup et al.
2017; for the input of a Transformer, Huang et al. 2025). The rows start at zero, so an untrained table changes nothing.
An n-gram does not reach beyond the start of its document: the place of a missing token is taken by token 0.
Cost: no product; a training step visits each table as the optimizer does.

Shape letters: B batch, T time, D width, N the largest order.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

_FACTORS = (36_313, 27_191, 15_485_863, 32_452_843)
_MODULUS = 2_147_483_647  # prime, and its square fits an int64


class _Table(nn.Embedding):
    """Rows that start at zero, whatever the recipe draws."""

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.weight)

    def draw_weights(self, matrix: Callable[[Tensor], None]) -> None:
        nn.init.zeros_(self.weight)


class HashedNgrams(nn.Module):
    """Tables of `rows` embeddings for each order from 2 to `order`; gives their sum.

    Args:
        order: N, the longest n-gram, from 2 to 4.
    """

    def __init__(self, order: int, rows: int, d_model: int) -> None:
        super().__init__()
        self.order, self.rows = order, rows
        self.tables = nn.ModuleList(_Table(rows, d_model) for _ in range(2, order + 1))

    def forward(self, tokens: Tensor, previous: Tensor | None, documents: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return what is added to the tokens' embeddings, (B, T, D), and the last N - 1 tokens, (B, N - 1).

        Args:
            tokens: (B, T) int64.
            previous: the N - 1 tokens before these, (B, N - 1); None: the text starts here.
            documents: (B, T) int64, the document of each position; None: each row is one document. The first one goes
                on from `previous`; of the tokens returned, those of another document than the last are 0.
        """
        batch, time = tokens.shape
        before = tokens.new_zeros(batch, self.order - 1) if previous is None else previous
        known = torch.cat([before, tokens], dim=1)  # (B, N - 1 + T)
        numbers = None  # of the documents that `known` is from
        if documents is not None:
            numbers = torch.cat([documents[:, :1].expand(-1, self.order - 1), documents], dim=1)
        hashed = tokens * _FACTORS[0]
        out = torch.zeros((), device=tokens.device)
        for back, table in enumerate(self.tables, start=1):
            earlier = known[:, self.order - 1 - back :][:, :time]
            if numbers is not None:
                earlier = earlier * (numbers[:, self.order - 1 - back :][:, :time] == documents)
            hashed = (hashed + earlier * _FACTORS[back]) % _MODULUS
            out = out + table(hashed % self.rows)
        last = known[:, time:]
        return out, last if numbers is None else last * (numbers[:, time:] == numbers[:, -1:])


def hashed_ngrams(order: int, rows: int, d_model: int) -> HashedNgrams | None:
    """Return the tables, or None for tables without rows."""
    return HashedNgrams(order, rows, d_model) if rows else None
