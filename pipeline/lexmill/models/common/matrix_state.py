"""A matrix state, S_t = S_{t-1} <> A_t + v_t k_t^T read as S_t q_t: what tokens write and read, one token at a time.

What a `Terms` holds says what A_t is: nothing (a sum of all writes), a decay for each head, for each key or for each
value, or the delta rule, which first takes away what the state holds under this key. Normalised forms have a column
of ones beside the values. Decays are logs, at most 0. `chunked_state` computes the same for many tokens at once.

Cost: 4 * K * V FLOPs a token and head, 6 with the delta rule.

Shape letters: B batch, H heads, T time, K keys' width, V values' width. The state is S^T, (B, H, K, V).
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor


@dataclass(frozen=True)
class Terms:
    """What tokens write and read.

    Attributes:
        query, key: (B, H, T, K).
        value: (B, H, T, V).
        key_decay: logs, (B, H, T, K), or (B, H, T, 1): one for all; None: none.
        value_decay: logs, (B, H, T, V).
        beta: (B, H, T, 1), the strength of the delta rule's writes; goes with a decay for all, or none.
        bonus: (H, 1, K); a token then reads the state before it, and its own write times this; goes with `key_decay`.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    key_decay: Tensor | None = None
    value_decay: Tensor | None = None
    beta: Tensor | None = None
    bonus: Tensor | None = None

    def new_state(self) -> Tensor:
        """Return the zero state, (B, H, K, V)."""
        batch, heads, _, width = self.value.shape
        return self.value.new_zeros(batch, heads, self.key.shape[-1], width)

    def at(self, place: int) -> Terms:
        """Return the terms of one token, T = 1."""
        parts = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "bonus"}
        cut = {name: part[:, :, place : place + 1] for name, part in parts.items() if part is not None}
        return Terms(**cut, bonus=self.bonus)


def step(terms: Terms, state: Tensor) -> tuple[Tensor, Tensor]:
    """Return one token's output, (B, H, 1, V), and the state after it."""
    query, key, value, before = terms.query, terms.key, terms.value, state
    if terms.key_decay is not None:
        state = state * terms.key_decay.exp().mT
    if terms.value_decay is not None:
        state = state * terms.value_decay.exp()
    if terms.beta is not None:
        value = terms.beta * (value - key @ state)
    state = state + key.mT @ value
    if terms.bonus is None:
        return query @ state, state
    return query @ before + (query * terms.bonus * key).sum(-1, keepdim=True) * value, state


def recurrent(terms: Terms, state: Tensor, starts: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return all outputs, (B, H, T, V), and the last state, a step for each token.

    Args:
        state: before the first token, (B, H, K, V).
        starts: (B, T) bool, where the state is zero before a token is written: the starts of documents.
    """
    found = []
    for place in range(terms.query.shape[2]):
        if starts is not None:
            state = state.masked_fill(starts[:, place, None, None, None], 0.0)
        out, state = step(terms.at(place), state)
        found.append(out)
    return torch.cat(found, dim=2), state
