"""Llama (Touvron et al. 2023): RMSNorm before each sub-layer, rotary positions, SwiGLU, grouped queries, no biases.

The function is that of LlamaForCausalLM in transformers, weight for weight:

    here                                          there
    embedding                                     model.embed_tokens
    blocks.N.attention_norm, feed_forward_norm    model.layers.N.input_layernorm, post_attention_layernorm
    blocks.N.attention.query, key, value, output  model.layers.N.self_attn.q_proj, k_proj, v_proj, o_proj
    blocks.N.feed_forward.gate, expand, output    model.layers.N.mlp.gate_proj, up_proj, down_proj
    norm                                          model.norm
    head (only where it is not tied)              lm_head

Dropout, which Llama has not, acts on embeddings and residual branches. Positions have no bound, but text longer than
`context` is unlike what the model was trained on.
Cost: about 6 * parameters FLOPs a token of training plus attention's 12 * n_layer * context * n_head * d_head; memory
O(B * T * n_layer * D), and V more a token where logits are asked for.

Shape letters: B batch, T time, D width, H heads, K head width, V vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from lexmill.models.common.attention import KeyValueCache
from lexmill.models.common.cross_entropy import fused_cross_entropy
from lexmill.models.common.documents import document_mask, document_positions
from lexmill.models.common.dropout import Dropout, add_dropped
from lexmill.models.common.gated_feed_forward import GatedFeedForward
from lexmill.models.common.grouped_attention import GroupedAttention
from lexmill.models.common.init import GPT2, initialize
from lexmill.models.common.norms import RMSNorm
from lexmill.models.common.rotary import Rotation, rotation
from lexmill.params.shapes_tmp import LlamaShape

if TYPE_CHECKING:
    from torch.distributed.tensor.parallel import ParallelStyle


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

    def __init__(self, shape: LlamaShape) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(shape.d_model, shape.norm_eps)
        self.attention = GroupedAttention(shape.d_model, shape.n_head, shape.n_kv_head, head_width(shape))
        self.feed_forward_norm = RMSNorm(shape.d_model, shape.norm_eps)
        self.feed_forward = GatedFeedForward(shape.d_model, shape.d_ffn)
        self.dropout = shape.dropout

    def forward(self, hidden: Tensor, by: Rotation, mask: Tensor | None, cache: KeyValueCache | None) -> Tensor:
        """(B, T, D) -> (B, T, D); without a mask, attention is causal."""
        attended = self.attention(self.attention_norm(hidden), by, mask, cache)
        hidden = add_dropped(hidden, attended, self.dropout, self.training)
        update = self.feed_forward(self.feed_forward_norm(hidden))
        return add_dropped(hidden, update, self.dropout, self.training)


def head_width(shape: LlamaShape) -> int:
    """K, of the shape or by default D / H."""
    return shape.d_head or shape.d_model // shape.n_head


class Llama(nn.Module):
    """A causal language model over `vocab_size` tokens."""

    def __init__(self, shape: LlamaShape, vocab_size: int) -> None:
        super().__init__()
        self.shape, self.vocab_size = shape, vocab_size
        self.embedding = nn.Embedding(vocab_size, shape.d_model)
        self.dropout = Dropout(shape.dropout)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.n_layer))
        self.norm = RMSNorm(shape.d_model, shape.norm_eps)
        self.head = None if shape.tie_embeddings else nn.Linear(shape.d_model, vocab_size, bias=False)
        initialize(self, GPT2())

    @property
    def context(self) -> int:
        """The longest window of its training, in tokens."""
        return self.shape.context

    def new_cache(self, batch: int) -> Cache:
        """An empty cache for `batch` sequences; the batch is fixed by the first forward that uses it."""
        if batch < 1:
            raise ValueError(f"a cache needs at least one sequence, not {batch}")
        return Cache(self.shape.n_layer, min(64, self.context))

    def forward(self, tokens: Tensor, cache: Cache | None = None, documents: Tensor | None = None) -> Tensor:
        """Logits of the next token: (B, T) int64 -> (B, T, V).

        Args:
            cache: `tokens` are what follows the positions already in it.
            documents: (B, T) int64, the document of each position; none looks at another, each starts at position 0.

        Raises:
            ValueError: for documents together with a cache.
        """
        return nn.functional.linear(self._hidden(tokens, cache, documents), self._output_matrix)  # (B, T, V)

    def loss(self, tokens: Tensor, targets: Tensor, documents: Tensor | None = None) -> Tensor:
        """The sum of nats over the targets (B, T) that are not -100; a float32 scalar."""
        return fused_cross_entropy(self._hidden(tokens, None, documents), self._output_matrix, targets)

    def next_logits(self, tokens: Tensor, cache: Cache) -> Tensor:
        """`forward`'s logits after the last token alone: (B, T) int64 -> (B, V)."""
        return nn.functional.linear(self._hidden(tokens, cache, None)[:, -1], self._output_matrix)

    @property
    def _output_matrix(self) -> Tensor:
        return self.embedding.weight if self.head is None else self.head.weight  # (V, D)

    def _hidden(self, tokens: Tensor, cache: Cache | None, documents: Tensor | None) -> Tensor:
        """The last norm's output, (B, T, D)."""
        mask = None
        if documents is None:
            start = 0 if cache is None else cache.length
            places = torch.arange(start, start + tokens.shape[1], device=tokens.device)
        elif cache is not None:
            raise ValueError("a cache holds one document a row; it cannot be used with documents")
        else:
            places, mask = document_positions(documents), document_mask(documents)
        by = rotation(places, head_width(self.shape), self.shape.rope_theta)
        hidden = self.dropout(self.embedding(tokens))  # (B, T, D)
        for index, block in enumerate(self.blocks):
            hidden = block(hidden, by, mask, None if cache is None else cache.layers[index])
        out: Tensor = self.norm(hidden)
        return out

    def count_parameters(self) -> int:
        """All trained numbers, a tied matrix once."""
        return sum(parameter.numel() for parameter in self.parameters())

    def flops_per_token(self) -> int:
        """FLOPs of one training token at full context: 6 for each weight of a matrix product, and attention.

        The embedding counts as the output matrix or, where that is another, not at all: look-ups are no products.
        Causal attention is counted whole, as is customary (Chowdhery et al. 2022, appendix B).
        """
        matrices = sum(p.numel() for p in self.parameters() if p.ndim >= 2)
        if self.head is not None:
            matrices -= self.embedding.weight.numel()
        attention = 12 * self.shape.n_layer * self.context * self.shape.n_head * head_width(self.shape)
        return 6 * matrices + attention

    def tensor_parallel_plan(self) -> dict[str, ParallelStyle]:
        """Heads and feed-forward channels over the devices; embedding, norms and output matrix whole on each.

        The number of devices has to divide `n_kv_head` and `d_ffn`.
        """
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

        plan: dict[str, ParallelStyle] = {}
        for layer in range(self.shape.n_layer):
            for name in ("attention.query", "attention.key", "attention.value", "feed_forward.gate"):
                plan[f"blocks.{layer}.{name}"] = ColwiseParallel()
            plan[f"blocks.{layer}.feed_forward.expand"] = ColwiseParallel()
            plan[f"blocks.{layer}.attention.output"] = RowwiseParallel()
            plan[f"blocks.{layer}.feed_forward.output"] = RowwiseParallel()
        return plan
