"""Multi-head attention (Vaswani et al. 2017) over torch's scaled_dot_product_attention, with a key-value cache.

A mask is boolean, true where a query may attend; a query that may attend to nothing gets zeros, never NaN.
There is no dropout on the weights: it would rule out the fused kernel and nearly double a step's time on a CPU.
Cost: 4 * D * H * K multiply-adds a token for the projections, 2 * S * H * K for the scores and the sums.

Shape letters: B batch, T queries, S keys, D width, H heads, K head width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from lexmill.models.common.mixer import Layout


class KeyValueCache:
    """Keys and values of one layer for the positions seen so far; grows by doubling, O(S) memory.

    Args:
        capacity: positions to reserve at the first append (a hint, not a bound).
    """

    def __init__(self, capacity: int = 64) -> None:
        self.capacity = capacity
        self.length = 0
        self._keys: Tensor | None = None
        self._values: Tensor | None = None

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add (B, H, T, K) keys and values; return all so far, (B, H, S, K) each."""
        end = self.length + keys.shape[2]
        if self._keys is None or self._values is None or end > self._keys.shape[2]:
            self._keys = self._grown(self._keys, keys, end)
            self._values = self._grown(self._values, values, end)
        self._keys.narrow(2, self.length, end - self.length).copy_(keys)
        self._values.narrow(2, self.length, end - self.length).copy_(values)
        self.length = end
        return self._keys.narrow(2, 0, end), self._values.narrow(2, 0, end)

    def _grown(self, old: Tensor | None, like: Tensor, end: int) -> Tensor:
        batch, heads, _, width = like.shape
        room = max(self.capacity, end, 0 if old is None else 2 * old.shape[2])
        new = like.new_empty(batch, heads, room, width)
        if old is not None:
            new[:, :, : self.length] = old[:, :, : self.length]
        return new

    def reorder(self, rows: Tensor) -> None:
        """Keep the batch rows `rows` (int64, (new B,)), in that order; repeats allowed (beam search)."""
        if self._keys is not None and self._values is not None:
            self._keys = self._keys.index_select(0, rows)
            self._values = self._values.index_select(0, rows)


_QUERIES = 256  # queries per block in the backward pass below, which skips half of the masked scores


class _CausalLowPrecision(torch.autograd.Function):
    """Causal attention in bf16 on a CPU, where the backward pass of torch's fused kernel is slower than in float32.

    Forward is that kernel. Backward recomputes the probabilities, one block of queries at a time, by batched products.
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        ctx.save_for_backward(query, keys, values)
        return scaled_dot_product_attention(query, keys, values, is_causal=True)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        saved = ctx.saved_tensors  # once: under recomputation they can be unpacked only once
        shape, scale = saved[0].shape, saved[0].shape[-1] ** -0.5
        with torch.autocast("cpu", enabled=False):
            query, keys, values, given = (x.flatten(0, 1) for x in (*saved, gradients[0]))  # (B * H, T, K)
            query = query * scale
            by_query, by_keys, by_values = torch.empty_like(query), torch.zeros_like(keys), torch.zeros_like(values)
            for start in range(0, query.shape[1], _QUERIES):
                end = min(start + _QUERIES, query.shape[1])
                q, g = query[:, start:end], given[:, start:end]
                k, v = keys[:, :end], values[:, :end]
                scores = q @ k.transpose(1, 2)  # (B * H, n, S)
                scores[:, :, start:] += torch.full((end - start, end - start), -math.inf, dtype=scores.dtype).triu_(1)
                p = scores.softmax(-1)
                by_scores = torch.ops.aten._softmax_backward_data(g @ v.transpose(1, 2), p, -1, p.dtype)
                by_query[:, start:end] = by_scores @ k
                by_keys[:, :end] += by_scores.transpose(1, 2) @ q
                by_values[:, :end] += p.transpose(1, 2) @ g
            by_query *= scale
        return by_query.view(shape), by_keys.view(shape), by_values.view(shape)


def attend(query: Tensor, keys: Tensor, values: Tensor, *, mask: Tensor | None, causal: bool) -> Tensor:
    """Return softmax(q k^T / sqrt(K)) v, (B, T, H * K), for (B, H, T, K) queries.

    Args:
        mask: broadcastable to (B, H, T, S): true where a query may attend, or numbers added to the scores; None:
            everywhere.
        causal: query t of T sees the first S - T + t + 1 keys (the queries are the last T positions).
    """
    t, s = query.shape[2], keys.shape[2]
    plain_causal = False
    if causal and t > 1:
        if mask is None and t == s:
            plain_causal = True
        else:
            triangle = torch.ones(t, s, dtype=torch.bool, device=query.device).tril(s - t)
            mask = triangle if mask is None else mask & triangle
    if plain_causal and query.dtype == torch.bfloat16 and query.device.type == "cpu" and query.requires_grad:
        out: Tensor = _CausalLowPrecision.apply(query, keys, values)
    else:
        out = scaled_dot_product_attention(query, keys, values, attn_mask=mask, is_causal=plain_causal)
    return out.transpose(1, 2).flatten(2)


def softmax_at(scores: Tensor, mask: Tensor) -> Tensor:
    """Return the softmax over the last axis where the mask is true, 0 elsewhere, also where it is true nowhere."""
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(dim=-1) * mask


def attend_texts(query: Tensor, keys: Tensor, values: Tensor, *, lengths: Sequence[int]) -> Tensor:
    """Return attention within each of several texts that follow each other, (1, N, H * K), for (1, H, N, K) queries.

    Args:
        lengths: of the texts, N together.
    """
    texts = zip(*(part.split(list(lengths), dim=2) for part in (query, keys, values)), strict=True)
    return torch.cat([attend(*text, mask=None, causal=False) for text in texts], dim=1)


def key_mask(real: Tensor) -> Tensor | None:
    """Return the mask of keys for `attend`: (B, S) -> (B, 1, 1, S), or None without padding, which is faster."""
    padded = torch.compiler.is_exporting() or not bool(real.all())  # a graph for all batches needs it
    return real[:, None, None, :] if padded else None


def split_heads(hidden: Tensor, n_head: int) -> Tensor:
    """(B, T, H * K) -> (B, H, T, K)."""
    return hidden.unflatten(-1, (n_head, -1)).transpose(1, 2)


class SelfAttention(nn.Module):
    """Attention of a sequence over itself; query, key and value come from one projection.

    The rows of that projection are ordered head by head, (H, 3, K), so that tensor parallelism can cut them into equal
    consecutive parts with whole heads each. `fuse_projections` and `split_projection` convert.

    Args:
        d_head: K; 0: d_model / n_head.

    Raises:
        ValueError: d_head is 0 and n_head does not divide d_model.
    """

    def __init__(self, d_model: int, n_head: int, d_head: int = 0) -> None:
        super().__init__()
        if d_head == 0 and d_model % n_head:
            raise ValueError(f"d_model {d_model} is not a multiple of n_head {n_head}")
        self.n_head, self.d_head = n_head, d_head or d_model // n_head
        self.query_key_value = nn.Linear(d_model, 3 * n_head * self.d_head)
        self.output = nn.Linear(n_head * self.d_head, d_model)

    def forward(
        self,
        hidden: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        """(B, T, D) -> (B, T, D); with a cache the queries are the last T of the cache's length + T positions."""
        # The number of heads is inferred: under tensor parallelism a process holds some of them.
        fused = self.query_key_value(hidden).unflatten(-1, (-1, 3, self.d_head))  # (B, T, H, 3, K)
        query, keys, values = (x.transpose(1, 2) for x in fused.unbind(-2))  # (B, H, T, K)
        if cache is not None:
            keys, values = cache.append(keys, values)
        out: Tensor = self.output(attend(query, keys, values, mask=mask, causal=causal))
        return out

    def fused_parts(self) -> dict[str, Layout]:
        """Query, key and value of each head."""
        return {"query_key_value.weight": (self.n_head, 3)}


def fuse_projections(query: Tensor, key: Tensor, value: Tensor, n_head: int) -> Tensor:
    """Return the fused `query_key_value` weight (or bias), (H * 3 * K, ...), from three (H * K, ...) parts."""
    parts = [part.unflatten(0, (n_head, -1)) for part in (query, key, value)]  # (H, K, ...)
    return torch.stack(parts, dim=1).flatten(0, 2)


def split_projection(fused: Tensor, n_head: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the query, key and value part, (H * K, ...) each, of a fused `query_key_value` weight or bias."""
    query, key, value = (part.flatten(0, 1) for part in fused.unflatten(0, (n_head, 3, -1)).unbind(1))
    return query, key, value


class CrossAttention(nn.Module):
    """Attention of a sequence over another, the memory."""

    def __init__(self, d_model: int, n_head: int) -> None:
        super().__init__()
        if d_model % n_head:
            raise ValueError(f"d_model {d_model} is not a multiple of n_head {n_head}")
        self.n_head = n_head
        self.query = nn.Linear(d_model, d_model)
        self.key_value = nn.Linear(d_model, 2 * d_model)
        self.output = nn.Linear(d_model, d_model)

    def project(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values (B, H, S, K) of a memory (B, S, D); computed once for all decoding steps."""
        keys, values = self.key_value(memory).chunk(2, dim=-1)
        return split_heads(keys, self.n_head), split_heads(values, self.n_head)

    def fused_parts(self) -> dict[str, Layout]:
        """All keys, then all values."""
        return {"key_value.weight": (1, 2)}

    def forward(
        self,
        hidden: Tensor,
        memory: Tensor | None,
        mask: Tensor | None = None,
        projected: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        """Attend from (B, T, D) to a memory (B, S, D), or to its `project`ed keys and values; return (B, T, D).

        Args:
            mask: broadcastable to (B, H, T, S), true where the memory holds a token.
        """
        if projected is None:
            assert memory is not None, "cross-attention needs a memory or its projection"
            projected = self.project(memory)
        keys, values = projected
        query = split_heads(self.query(hidden), self.n_head)  # (B, H, T, K)
        out: Tensor = self.output(attend(query, keys, values, mask=mask, causal=False))
        return out
