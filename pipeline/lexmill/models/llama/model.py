"""Llama (Touvron et al. 2023): RMSNorm before each sub-layer, rotary positions, SwiGLU, grouped queries, no biases.

Computes the same function as LlamaForCausalLM in transformers:

    here                                          there
    embedding                                     model.embed_tokens
    blocks.N.attention_norm, feed_forward_norm    model.layers.N.input_layernorm, post_attention_layernorm
    blocks.N.attention.query, key, value, output  model.layers.N.self_attn.q_proj, k_proj, v_proj, o_proj
    blocks.N.feed_forward.gate, expand, output    model.layers.N.mlp.gate_proj, up_proj, down_proj
    norm                                          model.norm
    head (only if not tied)                 lm_head

Dropout, which Llama does not have, acts on embeddings and residual branches. Positions are unlimited, but the model has
not seen text longer than `context` in training.
Cost: as of `CausalModel`, plus the attention's 12 * n_layer * context * n_head * d_head FLOPs a training token.
"""

from __future__ import annotations

from lexmill.models.common.block import Block
from lexmill.models.common.causal import CausalModel
from lexmill.models.common.feed_forward import GatedFeedForward
from lexmill.models.common.grouped_attention import GroupedAttention
from lexmill.models.common.init import GPT2
from lexmill.models.common.norms import RMSNorm
from lexmill.models.llama.shape import Shape


class Llama(CausalModel):
    """A causal language model over `vocab_size` tokens."""

    def __init__(self, shape: Shape, vocab_size: int) -> None:
        def norm() -> RMSNorm:
            return RMSNorm(shape.d_model, shape.norm_eps)

        def block() -> Block:
            heads = shape.n_head, shape.n_kv_head, shape.head_width
            attention = GroupedAttention(shape.d_model, *heads, theta=shape.rope_theta)
            return Block(attention, GatedFeedForward(shape.d_model, shape.d_ffn), norm, shape.dropout)

        super().__init__(shape, vocab_size, block=block, norm=norm(), recipe=GPT2(), tied=shape.tie_embeddings)
