"""A decoder-only Transformer whose parts are options; each combination is trained, decoded and measured by one code.

With the options of GPT-2 or Llama it is the function of the families `gpt` and `llama`, which a test holds equal; these
read and write checkpoints of transformers, this one does not.

| option | source |
|---|---|
| norm: post, pre, sandwich | Vaswani et al. 2017; Radford et al. 2019; Ding et al. 2021 |
| norm_kind: layer, rms | Ba et al. 2016; Zhang and Sennrich 2019 |
| activation: gelu, swiglu, relu_squared | Hendrycks and Gimpel 2016; Shazeer 2020; So et al. 2021 |
| n_kv_head: 1, fewer than n_head | Shazeer 2019; Ainslie et al. 2023 |
| positions: sinusoidal, learned | Vaswani et al. 2017; Radford et al. 2018 |
| positions: rotary, alibi, relative | Su et al. 2021; Press et al. 2022; Raffel et al. 2020 |
| window | Beltagy et al. 2020 |
| ngram_rows, ngram_order | Svenstrup et al. 2017; Huang et al. 2025 |
| qk_norm, logit_cap | Dehghani et al. 2023; Gemma 2, 2024 |

Its causal mask can be lifted: `both_directions` (Charpentier and Samuel 2024).

Cost: as of `CausalModel`, plus the attention's 12 * n_layer * context * H * K FLOPs a training token.

Shape letters: B batch, T time, D width, V vocabulary.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from lexmill.base.errors import UserError
from lexmill.models.common.block import Block, SandwichBlock
from lexmill.models.common.causal import Cache, CausalModel
from lexmill.models.common.cross_entropy import IGNORED
from lexmill.models.common.decoder_attention import DecoderAttention
from lexmill.models.common.documents import document_positions
from lexmill.models.common.feed_forward import FeedForward, GatedFeedForward
from lexmill.models.common.hashed_ngrams import hashed_ngrams
from lexmill.models.common.init import GPT2
from lexmill.models.common.norms import RMSNorm
from lexmill.models.common.position_bias import RelativeBias, sinusoids
from lexmill.models.decoder.shape import Shape


class Decoder(CausalModel):
    """A causal language model over `vocab_size` tokens."""

    def __init__(self, shape: Shape, vocab_size: int) -> None:
        # All layers add the same bias; the first one's attention makes it.
        relative = [RelativeBias(shape.n_head)] if shape.positions == "relative" else []

        def norm() -> nn.Module:
            return RMSNorm(shape.d_model) if shape.norm_kind == "rms" else nn.LayerNorm(shape.d_model)

        def block() -> Block:
            attention = DecoderAttention(
                shape.d_model,
                shape.n_head,
                shape.kv_heads,
                shape.head_width,
                positions=shape.positions,
                window=shape.window,
                qk_norm=shape.qk_norm,
                bias=shape.bias,
                theta=shape.rope_theta,
                relative=relative.pop() if relative else None,
            )
            if shape.norm == "sandwich":
                return SandwichBlock(attention, _feed_forward(shape), norm, shape.dropout)
            return Block(attention, _feed_forward(shape), norm, shape.dropout, pre=shape.norm == "pre")

        super().__init__(
            shape,
            vocab_size,
            block=block,
            norm=nn.Identity() if shape.norm == "post" else norm(),
            recipe=GPT2(),
            positions=shape.positions == "learned",
            tied=shape.tie_embeddings,
            ngrams=hashed_ngrams(shape.ngram_order, shape.ngram_rows, shape.d_model),
        )

    def embedded(self, tokens: Tensor, cache: Cache | None, documents: Tensor | None) -> Tensor:
        """Return the input of the first block before dropout, (B, T, D)."""
        hidden = super().embedded(tokens, cache, documents)
        if self.shape.positions != "sinusoidal":
            return hidden
        start = 0 if cache is None else cache.length
        places = torch.arange(start, start + tokens.shape[1], device=tokens.device)
        places = places if documents is None else document_positions(documents)
        width = hidden.shape[-1]
        # As in the paper: drawn as small as they are, embeddings would be lost beside sinusoids.
        return hidden * width**0.5 + sinusoids(places, width).to(hidden.dtype)

    def masked_loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Return nats (B, T) of the targets, 0 where they are -100; see `both_directions`."""
        hidden = self.both_directions(tokens)
        predicted = targets != IGNORED
        nats = nn.functional.cross_entropy(self.logits(hidden[predicted]).float(), targets[predicted], reduction="none")
        return torch.zeros(targets.shape, device=nats.device).masked_scatter(predicted, nats)

    def both_directions(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the input of the output matrix, (B, T, D), where each token sees its whole row.

        Args:
            mask: (B, T), true at real tokens, which alone are seen; None: all are.

        Raises:
            UserError: as of `check_both_directions`.
        """
        self.check_both_directions()
        blocks, width = list(self.blocks), tokens.shape[1]
        by, _ = cast(Any, blocks[0]).mixer.shared(tokens, 0, None)
        if mask is None:
            seen = torch.ones(width, width, dtype=torch.bool, device=tokens.device)
        else:
            seen = mask[:, None, None, :].expand(-1, 1, width, -1)
        hidden = self.dropout(self.embedded(tokens, None, None))
        out: Tensor = self.norm(self.through(blocks, hidden, (by, seen), [None] * len(blocks)))
        return out

    def check_both_directions(self) -> None:
        """Raise `UserError` for positions or a window that look back only."""
        if self.shape.window or self.shape.positions in ("alibi", "relative"):
            raise UserError("a window, and alibi or relative positions, look back only; leave them out to look ahead")

    def logits(self, hidden: Tensor) -> Tensor:
        """(..., D) -> (..., V)."""
        logits, cap = super().logits(hidden), self.shape.logit_cap
        return cap * torch.tanh(logits / cap) if cap else logits

    def loss(
        self, tokens: Tensor, targets: Tensor, documents: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Return the sum of nats over the targets (B, T) that are not -100; with a cap all logits are kept at once."""
        if not self.shape.logit_cap:
            return super().loss(tokens, targets, documents, cache)
        logits = self.logits(self.hidden(tokens, cache, documents)).flatten(0, 1).float()
        return nn.functional.cross_entropy(logits, targets.flatten(), reduction="sum")


def _feed_forward(shape: Shape) -> nn.Module:
    if shape.activation == "swiglu":
        return GatedFeedForward(shape.d_model, shape.ffn_width)
    return FeedForward(shape.d_model, shape.ffn_width, shape.activation, bias=shape.bias)
