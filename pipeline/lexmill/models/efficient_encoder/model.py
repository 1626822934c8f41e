"""The network.

Cost of a layer's attention for T tokens and M features: T^2 whole, T M otherwise.

Shape letters: B texts, T tokens, D width, H heads, K head width, M features.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from lexmill.models.common.attention import key_mask, split_heads
from lexmill.models.common.dropout import Dropout, add_dropped
from lexmill.models.common.feed_forward import FeedForward
from lexmill.models.common.random_features import LEAST, log_features, orthogonal_features
from lexmill.models.common.text_encoder import STD, TextEncoder
from lexmill.models.efficient_encoder.shape import Shape


class EfficientEncoder(TextEncoder):
    """Computes hidden states of texts."""

    def __init__(self, shape: Shape, vocab_size: int) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(vocab_size, shape.d_model)
        self.positions = nn.Embedding(shape.max_positions, shape.d_model)
        self.dropout = Dropout(shape.dropout)
        self.blocks = nn.ModuleList(_Layer(shape) for _ in range(shape.n_layer))
        self.norm = nn.LayerNorm(shape.d_model)
        self.apply(_draw)

    def hidden(self, tokens: Tensor, mask: Tensor, segments: Tensor | None = None) -> Tensor:
        """Map token ids (B, T) and a mask (B, T), true at real tokens, to (B, T, D).

        Segments have no embedding here: the token between them tells them apart.

        Raises:
            ValueError: a text is longer than the positions.
        """
        self.check(tokens)
        hidden = self.dropout(self.embedding(tokens) + self.positions.weight[: tokens.shape[1]])
        for layer in self.blocks:
            hidden = layer(hidden, mask)
        out: Tensor = self.norm(hidden)
        return out


def _draw(module: nn.Module) -> None:
    """Draw first weights: normal, without biases."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=STD)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


class Softmax(nn.Module):
    """Every token sees every real one."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """(B, H, T, K) each and a mask (B, T) -> (B, H, T, K)."""
        return scaled_dot_product_attention(query, key, value, attn_mask=key_mask(mask))


class Linformer(nn.Module):
    """Softmax attention over M sums of the keys and values at all positions, with learned weights (Wang et al. 2020).

    Each layer has one matrix for keys and one for values, (M, longest text), which its heads share. Padding adds
    nothing to a sum. A causal model cannot have it: each sum mixes earlier and later positions.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.of_keys, self.of_values = (nn.Linear(shape.max_positions, shape.n_feature, bias=False) for _ in range(2))

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """See `Softmax.forward`."""
        real = mask[:, None, :, None].to(key.dtype)
        key, value = (
            project.weight[:, : mask.shape[1]] @ (rows * real)  # (B, H, M, K)
            for project, rows in ((self.of_keys, key), (self.of_values, value))
        )
        return scaled_dot_product_attention(query, key, value)


class Performer(nn.Module):
    """Softmax attention estimated by M random features from a fixed seed, which are not stored."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.features: Tensor
        width = shape.d_model // shape.n_head
        drawn = orthogonal_features(shape.n_feature, width, torch.Generator("cpu").manual_seed(0))
        self.register_buffer("features", drawn, persistent=False)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """See `Softmax.forward`."""
        query, key = (log_features(rows, self.features) for rows in (query, key))  # (B, H, T, M)
        real = mask[:, None, :, None]
        query = (query - query.amax(-1, keepdim=True)).exp() + LEAST
        # What all keys share cancels; padding is left out before the maximum is taken.
        highest = key.masked_fill(~real, -torch.inf).amax((-2, -1), keepdim=True)
        key = ((key - highest).clamp(max=0).exp() + LEAST) * real
        total = key.sum(-2, keepdim=True).transpose(-1, -2)  # (B, H, M, 1)
        return (query @ (key.transpose(-1, -2) @ value)) / (query @ total)


_ATTENTION = {"softmax": lambda _: Softmax(), "linformer": Linformer, "performer": Performer}


class _Layer(nn.Module):
    """Attention, then a feed-forward layer, each on its normed input and added to it."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.n_head, self.rate = shape.n_head, shape.dropout
        self.attention_norm, self.feed_forward_norm = (nn.LayerNorm(shape.d_model) for _ in range(2))
        self.query, self.key, self.value, self.output = (nn.Linear(shape.d_model, shape.d_model) for _ in range(4))
        self.attention = _ATTENTION[shape.attention](shape)
        self.feed_forward = FeedForward(shape.d_model, shape.d_ffn)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """(B, T, D) and a mask (B, T) -> (B, T, D)."""
        normed = self.attention_norm(hidden)
        heads = (split_heads(of(normed), self.n_head) for of in (self.query, self.key, self.value))
        found = self.attention(*heads, mask).transpose(1, 2).flatten(2)  # (B, H, T, K) -> (B, T, D)
        hidden = add_dropped(hidden, self.output(found), self.rate, self.training)
        return add_dropped(hidden, self.feed_forward(self.feed_forward_norm(hidden)), self.rate, self.training)
