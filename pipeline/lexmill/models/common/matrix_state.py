"""A matrix state, S_t = S_{t-1} <> A_t + v_t k_t^T read as S_t q_t: one token at a time, or a chunk at a time.

What a `Terms` holds says what A_t is: nothing (a sum of all writes), a decay for each head, for each key or for each
value, or the delta rule, which first takes away what the state holds under this key. Normalised forms have a column
of ones beside the values. Decays are logs, at most 0.

Within a chunk of C tokens everything is a product of matrices; between chunks only the state is passed on (Hua et al.
2022; Yang et al. 2024). The delta rule's writes depend on each other: with A_ij = b_i k_i^T k_j for j < i they solve
(I + A) U = b (V - K S^T), a unit lower-triangular system for each chunk (the WY form, Yang et al. 2024).
Cost: about 2 * C * (K + V) + 4 * K * V FLOPs a token and head forward; the step, 4 * K * V.

Shape letters: B batch, H heads, T time, C chunk, N chunks, K keys' width, V values' width. The state is S^T, (B, H, K, V).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import cast

import torch
from torch import Tensor
from torch.nn.functional import pad

from lexmill.models.common import decayed_products


@dataclass(frozen=True)
class Terms:
    """What tokens write and read, (B, H, T, ...) each.

    Attributes:
        query, key: (B, H, T, K).
        value: (B, H, T, V).
        key_decay: (B, H, T, K), logs; (B, H, T, 1): one for all; None: none.
        value_decay: (B, H, T, V), logs.
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
        parts = {one.name: getattr(self, one.name) for one in fields(self)}
        found = {name: part[:, :, place : place + 1] for name, part in parts.items() if part is not None}
        return Terms(**found if self.bonus is None else {**found, "bonus": self.bonus})


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
    """Return what `chunked` does, by its definition: a step for each token."""
    found = []
    for place in range(terms.query.shape[2]):
        if starts is not None:
            state = state.masked_fill(starts[:, place, None, None, None], 0.0)
        out, state = step(terms.at(place), state)
        found.append(out)
    return torch.cat(found, dim=2), state


def chunked(terms: Terms, state: Tensor, chunk: int, starts: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the outputs, (B, H, T, V), and the state after the last token.

    Args:
        state: before the first token, (B, H, K, V).
        chunk: C, a power of two.
        starts: (B, T) bool, where the state is zero before a token is written: the starts of documents.
    """
    time = terms.query.shape[2]
    size = min(chunk, 1 << (time - 1).bit_length())
    query, key, value = (_cut(part, size) for part in (terms.query, terms.key, terms.value))  # (N, B, H, C, .)
    logs = None if terms.key_decay is None else _cut(terms.key_decay, size)
    by_key = None if logs is None else logs.cumsum(-2)
    by_value = None if terms.value_decay is None else _cut(terms.value_decay, size).cumsum(-2)
    reading = by_key if terms.bonus is None or by_key is None else by_key - cast(Tensor, logs)
    same = carried = to_end = None
    if starts is not None:
        number = _cut(starts[:, None, :, None].to(value.dtype), size).cumsum(-2)  # (N, B, 1, C, 1): from 0 in a chunk
        same, carried = (number == number.mT).to(value.dtype), (number == 0).to(value.dtype)
        to_end = (number == number[..., -1:, :]).to(value.dtype)

    scores = _times(_scores(query, key, by_key, reading, terms.bonus), same)  # (N, B, H, C, C)
    reach = _times(_decayed(query, reading), carried)
    left = _times(key if by_key is None else key * (by_key[..., -1:, :] - by_key).exp(), to_end)
    right = value if by_value is None else value * (by_value[..., -1:, :] - by_value).exp()
    keep = value.new_ones(1, 1, 1, 1, 1) if by_key is None else by_key[..., -1:, :].exp().mT  # (N, B, H, K or 1, 1)
    keep = keep if by_value is None else keep * by_value[..., -1:, :].exp()
    keep = keep if carried is None else keep * carried[..., -1:, :]
    if terms.beta is not None:
        beta = _cut(terms.beta, size)
        system = _times(_pair_decay((beta * key) @ key.mT, by_key), same)
        wanted = torch.cat([beta * value, _times(_decayed(beta * key, by_key), carried)], -1)
        solved = torch.linalg.solve_triangular(system, wanted, upper=False, unitriangular=True)
        right, taken = solved.split([value.shape[-1], key.shape[-1]], -1)
        unit = torch.eye(key.shape[-1], dtype=value.dtype, device=value.device)
        changed = keep * unit - left.mT @ taken  # (N, B, H, K, K)
    added = left.mT @ right  # (N, B, H, K, V)

    before = []
    for n in range(len(added)):
        before.append(state)
        if terms.beta is not None:
            state = changed[n] @ state + added[n]
        else:
            state = torch.addcmul(added[n], state, keep[n if len(keep) > 1 else 0])
    states = torch.stack(before)
    if terms.beta is not None:
        value = right - taken @ states
    inner = scores @ value if by_value is None else decayed_products.mixed(scores, value, by_value)
    out = inner + _decayed(reach @ states, by_value)
    return out.permute(1, 2, 0, 3, 4).flatten(2, 3)[:, :, :time], state


def _cut(part: Tensor, size: int) -> Tensor:
    """(B, H, T, X) -> (N, B, H, C, X), zeros after the last token."""
    short = -part.shape[2] % size
    part = pad(part, (0, 0, 0, short)) if short else part
    return part.unflatten(2, (-1, size)).permute(2, 0, 1, 3, 4).contiguous()


def _times(part: Tensor, mask: Tensor | None) -> Tensor:
    return part if mask is None else part * mask


def _decayed(part: Tensor, logs: Tensor | None) -> Tensor:
    return part if logs is None else part * logs.exp()


def _scores(query: Tensor, key: Tensor, logs: Tensor | None, reading: Tensor | None, bonus: Tensor | None) -> Tensor:
    """Return the decayed products of queries with keys up to their own, (..., C, C)."""
    if logs is not None and reading is not None and (logs.shape[-1] > 1 or bonus is not None):
        own = query * key if bonus is None else query * bonus * key
        return decayed_products.scores(query, key, logs.expand_as(key), reading.expand_as(key), own.sum(-1))
    return _pair_decay(query @ key.mT, logs)


def _pair_decay(products: Tensor, logs: Tensor | None) -> Tensor:
    """Return (..., C, C) products times exp(logs_i - logs_j) for j <= i, else 0; logs (..., C, 1)."""
    if logs is None:
        return products.tril()
    later = torch.ones(products.shape[-2:], dtype=torch.bool, device=products.device).triu(1)
    return products * (logs - logs.mT).masked_fill(later, -torch.inf).exp()
