"""The network: BERT's task with the parts of later Transformers, as ModernBERT (Warner et al. 2024) has them.

Rotary positions (Su et al. 2021) in place of learned ones, so that no weight depends on the longest text; pre-norm and
a norm after the embedding; feed-forward layers gated by GELU (Shazeer 2020); no biases anywhere.

On a CPU the texts of a padded batch are laid end to end and attention is within each (ModernBERT's unpadding), so that
padding costs nothing; elsewhere padding is masked.

Cost: a training step is about 6 * (parameters without the embedding) FLOPs a token, plus attention's T^2.

Shape letters: B texts, T tokens, D width, H heads, K head width, F width of the feed-forward layers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from lexmill.models.common.attention import attend, attend_texts, key_mask
from lexmill.models.common.dropout import Dropout, add_dropped
from lexmill.models.common.feed_forward import GatedFeedForward
from lexmill.models.common.norms import RMSNorm
from lexmill.models.common.rotary import Rotation, rotate, rotation
from lexmill.models.common.text_encoder import STD, TextEncoder
from lexmill.models.modern_encoder.shape import Shape

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Queries, keys and values (B, H, T, K) to (B, T, H * K)."""


class ModernEncoder(TextEncoder):
    """Computes hidden states of texts."""

    unpads = True

    def __init__(self, shape: Shape, vocab_size: int) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(vocab_size, shape.d_model)
        self.embedding_norm = _norm(shape)
        self.dropout = Dropout(shape.dropout)
        self.blocks = nn.ModuleList(_Layer(shape) for _ in range(shape.n_layer))
        self.norm = _norm(shape)
        self.apply(_draw)

    def hidden(self, tokens: Tensor, mask: Tensor, segments: Tensor | None = None) -> Tensor:
        """Map token ids (B, T) and a mask (B, T), true at real tokens, to (B, T, D).

        Segments have no embedding here: the token between them separates them.

        Raises:
            ValueError: a text is longer than the positions.
        """
        self.check(tokens)
        places = torch.arange(tokens.shape[1], device=tokens.device)
        keys = key_mask(mask)
        padded = torch.compiler.is_exporting() or tokens.device.type != "cpu"
        if keys is None or padded or not bool(mask.any()):
            return self.through(tokens, places, partial(attend, mask=keys, causal=False))
        lengths = mask.sum(dim=1).tolist()
        texts = self.through(tokens[mask][None], places.expand_as(tokens)[mask], partial(attend_texts, lengths=lengths))
        return texts.new_zeros(*tokens.shape, self.d_model).index_put((mask,), texts[0])

    def through(self, tokens: Tensor, places: Tensor, attention: Attention) -> Tensor:
        """Return the hidden states (B, T, D) of tokens (B, T) at places (T,)."""
        by = rotation(places, self.d_model // self.shape.n_head, self.shape.rope_theta)
        hidden = self.dropout(self.embedding_norm(self.embedding(tokens)))
        for layer in self.blocks:
            hidden = layer(hidden, by, attention)
        out: Tensor = self.norm(hidden)
        return out


def _norm(shape: Shape) -> nn.Module:
    return RMSNorm(shape.d_model) if shape.norm_kind == "rms" else nn.LayerNorm(shape.d_model, bias=False)


def _draw(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=STD)


class _Layer(nn.Module):
    """Attention, then a gated feed-forward layer, each on its normed input and added to it."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.d_model
        self.n_head, self.rate = shape.n_head, shape.dropout
        self.attention_norm, self.feed_forward_norm = _norm(shape), _norm(shape)
        self.query, self.key, self.value, self.output = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.feed_forward = GatedFeedForward(width, shape.d_ffn, gelu)

    def forward(self, hidden: Tensor, by: Rotation, attention: Attention) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        normed = self.attention_norm(hidden)
        query, key, value = (of(normed).unflatten(-1, (self.n_head, -1)) for of in (self.query, self.key, self.value))
        query, key, value = (part.transpose(1, 2) for part in (rotate(query, by), rotate(key, by), value))
        mixed = self.output(attention(query, key, value))
        hidden = add_dropped(hidden, mixed, self.rate, self.training)
        return add_dropped(hidden, self.feed_forward(self.feed_forward_norm(hidden)), self.rate, self.training)
