"""GPT-2 (Radford et al. 2019): a decoder-only Transformer that gives the next token's logits at each position.

Pre-norm blocks, learned positions, GELU (tanh form), output matrix tied to the embedding, residual projections
scaled down at the start. Dropout acts on embeddings and residual branches, not on the attention weights: that would
cost the fused attention kernel, and on a CPU nearly double a step's time.
Cost: about 6 * parameters FLOPs a token of training plus the attention's 12 * n_layer * context * d_model; memory
O(B * T * (n_layer * D + V)).

Shape letters: B batch, T time, D width, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lexmill.models.common.attention import KeyValueCache, SelfAttention
from lexmill.models.common.dropout import Dropout
from lexmill.models.common.feed_forward import FeedForward
from lexmill.models.common.init import gpt2_init
from lexmill.params import GPTShape


class Cache:
    """Keys and values of all layers, for decoding one token after another."""

    def __init__(self, n_layer: int, capacity: int) -> None:
        self.layers = [KeyValueCache(capacity) for _ in range(n_layer)]

    @property
    def length(self) -> int:
        """Positions seen so far."""
        return self.layers[0].length

    def reorder(self, rows: Tensor) -> None:
        """Keep the batch rows `rows`, in that order."""
        for layer in self.layers:
            layer.reorder(rows)


class Block(nn.Module):
    """hidden + attention(norm(hidden)), then hidden + feed_forward(norm(hidden))."""

    def __init__(self, shape: GPTShape) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(shape.d_model)
        self.attention = SelfAttention(shape.d_model, shape.n_head)
        self.feed_forward_norm = nn.LayerNorm(shape.d_model)
        self.feed_forward = FeedForward(shape.d_model, 4 * shape.d_model, "gelu_tanh")
        self.dropout = Dropout(shape.dropout)

    def forward(self, hidden: Tensor, cache: KeyValueCache | None) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        attended = self.attention(self.attention_norm(hidden), causal=True, cache=cache)
        hidden = hidden + self.dropout(attended)
        out: Tensor = hidden + self.dropout(self.feed_forward(self.feed_forward_norm(hidden)))
        return out


class GPT(nn.Module):
    """A causal language model over `vocab_size` tokens."""

    def __init__(self, shape: GPTShape, vocab_size: int) -> None:
        super().__init__()
        self.shape, self.vocab_size = shape, vocab_size
        self.embedding = nn.Embedding(vocab_size, shape.d_model)
        self.positions = nn.Embedding(shape.context, shape.d_model)
        self.dropout = Dropout(shape.dropout)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.n_layer))
        self.norm = nn.LayerNorm(shape.d_model)
        gpt2_init(self, shape.n_layer)

    @property
    def context(self) -> int:
        """The longest input, in tokens."""
        return self.shape.context

    def new_cache(self, batch: int) -> Cache:
        """An empty cache for `batch` sequences; the batch is fixed by the first forward that uses it."""
        if batch < 1:
            raise ValueError(f"a cache needs at least one sequence, not {batch}")
        return Cache(self.shape.n_layer, min(64, self.context))

    def forward(self, tokens: Tensor, cache: Cache | None = None) -> Tensor:
        """Logits of the next token: (B, T) int64 -> (B, T, V).

        With a cache, `tokens` are what follows the positions already in it.

        Raises:
            ValueError: when positions beyond the context are asked for.
        """
        start = 0 if cache is None else cache.length
        end = start + tokens.shape[1]
        if end > self.context:
            raise ValueError(f"{end} positions, but the model's context is {self.context}")
        positions = torch.arange(start, end, device=tokens.device)
        hidden = self.dropout(self.embedding(tokens) + self.positions(positions))  # (B, T, D)
        for index, block in enumerate(self.blocks):
            hidden = block(hidden, None if cache is None else cache.layers[index])
        return nn.functional.linear(self.norm(hidden), self.embedding.weight)  # (B, T, V)

    def count_parameters(self) -> int:
        """All trained numbers, the tied matrix once."""
        return sum(parameter.numel() for parameter in self.parameters())

    def flops_per_token(self) -> int:
        """FLOPs of one training token at full context: 6 for each weight of a matrix product, and attention.

        The embedding counts once, as the output matrix; the look-ups count nothing. Causal attention is counted
        whole (12 * T * D a layer), as is customary (Chowdhery et al. 2022, appendix B).
        """
        matrices = sum(p.numel() for p in self.parameters() if p.ndim >= 2) - self.positions.weight.numel()
        return 6 * matrices + 12 * self.shape.n_layer * self.context * self.shape.d_model
