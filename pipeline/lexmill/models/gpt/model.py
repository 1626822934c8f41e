"""GPT (Radford et al. 2018), GPT-2 (2019) and GPT-3 (Brown et al. 2020): a decoder-only Transformer.

Learned positions, GELU (tanh form or exact), output matrix tied to the embedding, residual projections scaled down at
the start; layer norm before each sub-layer and at the end, or, as in the first GPT, after each sub-layer only. Dropout
acts on embeddings and residual branches, not on the attention weights.
Cost: about 6 * parameters FLOPs a token of training plus the attention's 12 * n_layer * context * H * K; memory
O(B * T * n_layer * D), and V more a token where logits are asked for.

Shape letters: B batch, T time, D width, H heads, K head width, V vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from lexmill.models.common.attention import KeyValueCache, SelfAttention
from lexmill.models.common.cross_entropy import fused_cross_entropy
from lexmill.models.common.documents import document_mask, document_positions
from lexmill.models.common.dropout import Dropout, add_dropped
from lexmill.models.common.feed_forward import FeedForward
from lexmill.models.common.init import GPT2, initialize
from lexmill.models.gpt.step import Weights, step
from lexmill.params.shapes_tmp import GPTShape

if TYPE_CHECKING:
    from torch.distributed.tensor.parallel import ParallelStyle


class Cache:
    """Keys and values of all layers, for decoding one token after another."""

    def __init__(self, n_layer: int, capacity: int) -> None:
        self.layers = [KeyValueCache(capacity) for _ in range(n_layer)]
        self.weights: list[Weights] | None = None  # views that the decoding step uses again

    @property
    def length(self) -> int:
        """Positions seen so far."""
        return self.layers[0].length

    def reorder(self, rows: Tensor) -> None:
        """Keep the batch rows `rows`, in that order."""
        for layer in self.layers:
            layer.reorder(rows)


class Block(nn.Module):
    """Attention, then the feed-forward layer, each `x + drop(f(norm(x)))` or, in post-norm, `norm(x + drop(f(x)))`."""

    def __init__(self, shape: GPTShape) -> None:
        super().__init__()
        self.pre, self.dropout = shape.norm == "pre", shape.dropout
        self.attention_norm = nn.LayerNorm(shape.d_model)
        self.attention = SelfAttention(shape.d_model, shape.n_head, shape.d_head)
        self.feed_forward_norm = nn.LayerNorm(shape.d_model)
        self.feed_forward = FeedForward(shape.d_model, 4 * shape.d_model, shape.activation)

    def forward(self, hidden: Tensor, mask: Tensor | None = None, cache: KeyValueCache | None = None) -> Tensor:
        """(B, T, D) -> (B, T, D); without a mask, (B, 1, T, T) of `document_mask`, attention is causal."""
        causal = mask is None
        if self.pre:
            hidden = self._add(hidden, self.attention(self.attention_norm(hidden), mask, causal, cache))
            return self._add(hidden, self.feed_forward(self.feed_forward_norm(hidden)))
        hidden = self.attention_norm(self._add(hidden, self.attention(hidden, mask, causal, cache)))
        out: Tensor = self.feed_forward_norm(self._add(hidden, self.feed_forward(hidden)))
        return out

    def _add(self, hidden: Tensor, update: Tensor) -> Tensor:
        return add_dropped(hidden, update, self.dropout, self.training)


class GPT(nn.Module):
    """A causal language model over `vocab_size` tokens."""

    def __init__(self, shape: GPTShape, vocab_size: int) -> None:
        super().__init__()
        self.shape, self.vocab_size = shape, vocab_size
        self.embedding = nn.Embedding(vocab_size, shape.d_model)
        self.positions = nn.Embedding(shape.context, shape.d_model)
        self.dropout = Dropout(shape.dropout)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.n_layer))
        # In post-norm every block ends with a norm already.
        self.norm = nn.LayerNorm(shape.d_model) if shape.norm == "pre" else nn.Identity()
        initialize(self, GPT2())

    @property
    def context(self) -> int:
        """The longest input, in tokens."""
        return self.shape.context

    def new_cache(self, batch: int) -> Cache:
        """An empty cache for `batch` sequences; the batch is fixed by the first forward that uses it."""
        if batch < 1:
            raise ValueError(f"a cache needs at least one sequence, not {batch}")
        return Cache(self.shape.n_layer, min(64, self.context))

    def forward(self, tokens: Tensor, cache: Cache | None = None, documents: Tensor | None = None) -> Tensor:
        """Logits of the next token: (B, T) int64 -> (B, T, V).

        Args:
            tokens: with a cache, what follows the positions already in it.
            cache: of `new_cache`.
            documents: (B, T) int64, the document of each position: none sees another's tokens, and each has the
                logits that it would have alone.

        Raises:
            ValueError: positions beyond the context are asked for, or documents together with a cache.
        """
        return nn.functional.linear(self._hidden(tokens, cache, documents), self.embedding.weight)

    def loss(self, tokens: Tensor, targets: Tensor, documents: Tensor | None = None) -> Tensor:
        """The sum of nats over the targets (B, T) that are not -100, a float32 scalar; see `forward`."""
        return fused_cross_entropy(self._hidden(tokens, None, documents), self.embedding.weight, targets)

    def next_logits(self, tokens: Tensor, cache: Cache) -> Tensor:
        """Logits of the token after the last: (B, T) int64, what follows the positions in the cache, -> (B, V).

        `forward`'s at the last position, without those of the others, and faster for one token; no autograd.
        """
        if tokens.shape[1] > 1 or cache.length == self.context or self.training:
            return self._hidden(tokens, cache, None)[:, -1] @ self.embedding.weight.t()
        return step(self, tokens[:, 0], cache)

    def _hidden(self, tokens: Tensor, cache: Cache | None, documents: Tensor | None) -> Tensor:
        """What the output projection reads: (B, T, D)."""
        start = 0 if cache is None else cache.length
        end = start + tokens.shape[1]
        if end > self.context:
            raise ValueError(f"{end} positions, but the model's context is {self.context}")
        mask: Tensor | None = None
        if documents is None:
            places = self.positions.weight[start:end]  # (T, D)
        else:
            if cache is not None:
                raise ValueError("packed documents cannot be read with a cache")
            mask, places = document_mask(documents), self.positions(document_positions(documents))  # (B, T, D)
        hidden = self.dropout(self.embedding(tokens) + places)  # (B, T, D)
        for index, block in enumerate(self.blocks):
            hidden = block(hidden, mask, None if cache is None else cache.layers[index])
        out: Tensor = self.norm(hidden)
        return out

    def tensor_parallel_plan(self) -> dict[str, ParallelStyle]:
        """How `parallelize_module` shares a block's matrices out: whole heads, and parts of the feed-forward width."""
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

        plan: dict[str, ParallelStyle] = {}
        for index in range(len(self.blocks)):
            plan[f"blocks.{index}.attention.query_key_value"] = ColwiseParallel()
            plan[f"blocks.{index}.attention.output"] = RowwiseParallel()
            plan[f"blocks.{index}.feed_forward.expand"] = ColwiseParallel()
            plan[f"blocks.{index}.feed_forward.output"] = RowwiseParallel()
        return plan

    def count_parameters(self) -> int:
        """All trained numbers, the tied matrix once."""
        return sum(parameter.numel() for parameter in self.parameters())

    def flops_per_token(self) -> int:
        """FLOPs of one training token at full context: 6 for each weight of a matrix product, and attention.

        The embedding counts once, as the output matrix; the look-ups count nothing. Causal attention is counted
        whole (12 * T * H * K a layer), as is customary (Chowdhery et al. 2022, appendix B).
        """
        matrices = sum(p.numel() for p in self.parameters() if p.ndim >= 2) - self.positions.weight.numel()
        width = self.shape.n_head * (self.shape.d_head or self.shape.d_model // self.shape.n_head)
        return 6 * matrices + 12 * self.shape.n_layer * self.context * width
