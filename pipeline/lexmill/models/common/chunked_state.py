"""`matrix_state.recurrent` in chunks of C tokens: products of matrices within a chunk, only the state between chunks.

Hua et al. 2022; Yang et al. 2024 (gated linear attention). The delta rule's writes depend on each other: with
A_ij = b_i k_i^T k_j for j < i, each decayed, they solve (I + A) U = b (V - K S^T), a unit lower-triangular system for
each chunk (the WY form; Yang et al. 2024, DeltaNet). No exponent is above 0, so no decay overflows.
Cost: 2 * C * (K + V) + 4 * K * V FLOPs a token and head forward; with the delta rule about twice that.

Shape letters: B batch, H heads, T time, N chunks, C tokens of a chunk, K keys' width, V values' width.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from lexmill.models.common import decayed_products
from lexmill.models.common.matrix_state import Terms


def chunked(terms: Terms, state: Tensor, chunk: int, starts: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return all outputs, (B, H, T, V), and the last state; see `recurrent`. `chunk` is C, a power of two."""
    time = terms.query.shape[2]
    cut = _Chunks(terms, min(chunk, 1 << (time - 1).bit_length()), starts)
    written, by_state = cut.written()
    left, keep = cut.left(), cut.keep()  # (N, B, H, C, K), (N, B, H, K or 1, V or 1)
    added = left.mT @ cut.remaining(written)  # (N, B, H, K, V)
    if by_state is not None:  # the delta rule's decay is a matrix, (N, B, H, K, K)
        unit = torch.eye(left.shape[-1], dtype=left.dtype, device=left.device)
        keep = keep * unit - left.mT @ by_state
    before = []
    for more, decay in zip(added.unbind(0), keep.expand(len(added), -1, -1, -1, -1).unbind(0), strict=True):
        before.append(state)
        state = torch.addcmul(more, state, decay) if by_state is None else more + decay @ state
    states = torch.stack(before)
    out = cut.read(written if by_state is None else written - by_state @ states, states)
    return out.permute(1, 2, 0, 3, 4).flatten(2, 3)[:, :, :time], state


class _Chunks:
    """The terms in chunks, (N, B, H, C, ...), and masks of what lies in one document, (N, B, 1, C, ...)."""

    def __init__(self, terms: Terms, size: int, starts: Tensor | None) -> None:
        self.query, self.key, self.value = (_cut(part, size) for part in (terms.query, terms.key, terms.value))
        self.beta, self.bonus = None if terms.beta is None else _cut(terms.beta, size), terms.bonus
        self.by_key = self.reading = None  # sums of logs up to a token, and up to the state that it reads
        if terms.key_decay is not None:
            self.by_key = self.reading = _cut(terms.key_decay, size).cumsum(-2)
            if terms.bonus is not None:
                self.reading = pad(self.by_key[..., :-1, :], (0, 0, 1, 0))
        self.by_value = None if terms.value_decay is None else _cut(terms.value_decay, size).cumsum(-2)
        self.same = self.from_before = self.to_end = None
        if starts is not None:
            number = _cut(starts[:, None, :, None].to(self.value.dtype), size).cumsum(-2)  # (N, B, 1, C, 1)
            self.same, self.from_before, self.to_end = (
                where.to(number.dtype) for where in (number == number.mT, number == 0, number == number[..., -1:, :])
            )

    def written(self) -> tuple[Tensor, Tensor | None]:
        """Return what is written under each key, (N, B, H, C, V); for the delta rule, how much less by the state."""
        if self.beta is None:
            return self.value, None
        key = self.beta * self.key
        system = _masked(_decayed_pairs(key @ self.key.mT, self.by_key), self.same)
        wanted = torch.cat([self.beta * self.value, _masked(_decayed(key, self.by_key), self.from_before)], -1)
        solved = torch.linalg.solve_triangular(system, wanted, upper=False, unitriangular=True)
        own, by_state = solved.split([self.value.shape[-1], key.shape[-1]], -1)
        return own, by_state

    def left(self) -> Tensor:
        """Return the keys as they are at the chunk's end."""
        return _masked(_remaining(self.key, self.by_key), self.to_end)

    def remaining(self, written: Tensor) -> Tensor:
        """Return the values as they are at the chunk's end."""
        return _remaining(written, self.by_value)

    def keep(self) -> Tensor:
        """Return how much of the state before a chunk there is after it."""
        keep = self.value.new_ones(1, 1, 1, 1, 1) if self.by_key is None else self.by_key[..., -1:, :].exp().mT
        keep = keep if self.by_value is None else keep * self.by_value[..., -1:, :].exp()
        return keep if self.from_before is None else keep * self.from_before[..., -1:, :]

    def read(self, written: Tensor, states: Tensor) -> Tensor:
        """Return the outputs, (N, B, H, C, V), from what a chunk writes and the states before it."""
        scores = _masked(self.scores(), self.same)  # (N, B, H, C, C)
        own = scores @ written if self.by_value is None else decayed_products.mixed(scores, written, self.by_value)
        reach = _masked(_decayed(self.query, self.reading), self.from_before)
        return own + _decayed(reach @ states, self.by_value)

    def scores(self) -> Tensor:
        """Return the decayed products of queries with keys up to their own, 0 for later ones."""
        if self.by_key is None or self.reading is None:
            return (self.query @ self.key.mT).tril()
        if self.by_key.shape[-1] == 1 and self.bonus is None:
            return _decayed_pairs(self.query @ self.key.mT, self.by_key)
        own = self.query * self.key if self.bonus is None else self.query * self.bonus * self.key
        logs, reading = self.by_key.expand_as(self.key), self.reading.expand_as(self.key)
        return decayed_products.scores(self.query, self.key, logs, reading, own.sum(-1))


def _cut(part: Tensor, size: int) -> Tensor:
    """(B, H, T, X) -> (N, B, H, C, X), zeros after the last token."""
    short = -part.shape[2] % size
    part = pad(part, (0, 0, 0, short)) if short else part
    return part.unflatten(2, (-1, size)).permute(2, 0, 1, 3, 4).contiguous()


def _masked(part: Tensor, mask: Tensor | None) -> Tensor:
    return part if mask is None else part * mask


def _decayed(part: Tensor, logs: Tensor | None) -> Tensor:
    return part if logs is None else part * logs.exp()


def _remaining(part: Tensor, logs: Tensor | None) -> Tensor:
    return part if logs is None else part * (logs[..., -1:, :] - logs).exp()


def _decayed_pairs(products: Tensor, logs: Tensor | None) -> Tensor:
    """Return (..., C, C) products times exp(logs_i - logs_j) for j <= i, else 0; logs (..., C, 1)."""
    if logs is None:
        return products.tril()
    later = torch.ones(products.shape[-2:], dtype=torch.bool, device=products.device).triu(1)
    return products * (logs - logs.mT).masked_fill(later, -torch.inf).exp()
