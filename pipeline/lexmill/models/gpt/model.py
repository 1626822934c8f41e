"""GPT (Radford et al. 2018), GPT-2 (2019) and GPT-3 (Brown et al. 2020): a decoder-only Transformer.

Learned positions, GELU (tanh form or exact), output matrix tied to the embedding, residual projections initialised
smaller; layer norm before each sub-layer and at the end, or, as in the first GPT, after each sub-layer only. Dropout
acts on embeddings and residual branches, not on the attention weights.
Cost: as of `CausalModel`, plus the attention's 12 * n_layer * context * H * K FLOPs a training token.

Shape letters: B batch, T time, D width, H heads, K head width, V vocabulary.
"""

from __future__ import annotations

from torch import Tensor, nn

from lexmill.models.common.block import Block
from lexmill.models.common.causal import Cache, CausalModel
from lexmill.models.common.causal_attention import CausalSelfAttention
from lexmill.models.common.feed_forward import FeedForward
from lexmill.models.common.init import GPT2
from lexmill.models.gpt.shape import Shape
from lexmill.models.gpt.step import StepCache, step


class GPT(CausalModel):
    """A causal language model over `vocab_size` tokens."""

    def __init__(self, shape: Shape, vocab_size: int) -> None:
        pre = shape.norm == "pre"

        def norm() -> nn.LayerNorm:
            return nn.LayerNorm(shape.d_model)

        def block() -> Block:
            attention = CausalSelfAttention(shape.d_model, shape.n_head, shape.d_head)
            feed_forward = FeedForward(shape.d_model, 4 * shape.d_model, shape.activation)
            return Block(attention, feed_forward, norm, shape.dropout, pre)

        super().__init__(
            shape,
            vocab_size,
            block=block,
            norm=norm() if pre else nn.Identity(),  # in post-norm every block already ends with a norm
            recipe=GPT2(),
            positions=True,
        )

    def new_cache(self, batch: int) -> StepCache:
        """Return an empty cache for `batch` sequences, which also keeps the views of the decoding step."""
        return StepCache(self.new_states(batch))

    def next_logits(self, tokens: Tensor, cache: Cache) -> Tensor:
        """Return `forward`'s logits after the last token: (B, T) int64 -> (B, V); fast for one token, no autograd."""
        if tokens.shape[1] > 1 or cache.length == self.context or self.training or not isinstance(cache, StepCache):
            return super().next_logits(tokens, cache)
        return step(self, tokens[:, 0], cache)
