"""BERT (Devlin et al. 2019): a bidirectional Transformer encoder with learned positions and post-norm.

Modules are named so that weights have the names of published checkpoints. A text is one segment, the first, unless its
segments are given. The pooler of published models is left out of the encoder.

Cost: a training step is about 6 * (parameters without embeddings) FLOPs a token, plus attention's T^2.
Shape letters: B texts, T tokens, D width, H heads, K head width, F width of the feed-forward layers.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from lexmill.models.bert.activations import ACTIVATIONS
from lexmill.models.bert.shape import Shape
from lexmill.models.common.attention import key_mask, split_heads
from lexmill.models.common.dropout import Dropout, add_dropped
from lexmill.models.common.text_encoder import TextEncoder


class Bert(TextEncoder):
    """Computes hidden states of texts."""

    def __init__(self, shape: Shape, vocab_size: int) -> None:
        super().__init__()
        self.shape = shape
        self.embeddings = _Embeddings(shape, vocab_size)
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(_Layer(shape) for _ in range(shape.num_hidden_layers))})
        self.apply(self._draw)

    def _draw(self, module: nn.Module) -> None:
        """Draw first weights: normal, without biases; the padding token's embedding is zero."""
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=self.init_std)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding) and module.padding_idx is not None:
            nn.init.zeros_(module.weight[module.padding_idx])

    @property
    def d_model(self) -> int:
        """D."""
        return self.shape.hidden_size

    @property
    def max_positions(self) -> int:
        """The longest text, in tokens."""
        return self.shape.max_position_embeddings

    @property
    def init_std(self) -> float:
        """The standard deviation of the initial weights."""
        return self.shape.initializer_range

    @property
    def n_segments(self) -> int:
        """How many segments it can tell apart."""
        return self.shape.type_vocab_size

    def hidden(self, tokens: Tensor, mask: Tensor, segments: Tensor | None = None) -> Tensor:
        """Map token ids (B, T) and a mask (B, T), true at real tokens, to (B, T, D).

        Args:
            segments: of each token (B, T), below `n_segments`; None: all are of the first.

        Raises:
            ValueError: a text is longer than the positions.
        """
        self.check(tokens)
        hidden, keys = self.embeddings(tokens, segments), key_mask(mask)
        for layer in self.encoder["layer"]:  # type: ignore[attr-defined]  # a list
            hidden = layer(hidden, keys)
        return hidden


class _Embeddings(nn.Module):
    """The normalised sum of a token's, its position's and its segment's embedding."""

    def __init__(self, shape: Shape, vocab_size: int) -> None:
        super().__init__()
        width = shape.hidden_size
        self.word_embeddings = nn.Embedding(vocab_size, width, padding_idx=shape.pad_token_id)
        self.position_embeddings = nn.Embedding(shape.max_position_embeddings, width)
        self.token_type_embeddings = nn.Embedding(shape.type_vocab_size, width)
        self.LayerNorm = nn.LayerNorm(width, eps=shape.layer_norm_eps)
        self.dropout = Dropout(shape.hidden_dropout_prob)

    def forward(self, tokens: Tensor, segments: Tensor | None) -> Tensor:
        """(B, T) -> (B, T, D)."""
        places, kinds = self.position_embeddings.weight[: tokens.shape[1]], self.token_type_embeddings
        of_place = places + (kinds.weight[0] if segments is None else kinds(segments))  # (T, D) or (B, T, D)
        summed = self.word_embeddings(tokens) + of_place  # (B, T, D)
        out: Tensor = self.dropout(self.LayerNorm(summed))
        return out


class _Attention(nn.Module):
    """Self-attention; every token sees every real one."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.hidden_size
        self.n_head, self.probability = shape.num_attention_heads, shape.attention_probs_dropout_prob
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))

    def forward(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        query, key, value = (split_heads(of(hidden), self.n_head) for of in (self.query, self.key, self.value))
        dropped = self.probability if self.training else 0.0
        heads = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropped)
        return heads.transpose(1, 2).flatten(2)  # (B, H, T, K) -> (B, T, D)


class _Output(nn.Module):
    """The end of a sublayer: a matrix, dropout, the residual, the norm."""

    def __init__(self, width: int, shape: Shape) -> None:
        super().__init__()
        self.dense = nn.Linear(width, shape.hidden_size)
        self.LayerNorm = nn.LayerNorm(shape.hidden_size, eps=shape.layer_norm_eps)
        self.probability = shape.hidden_dropout_prob

    def forward(self, inner: Tensor, residual: Tensor) -> Tensor:
        """(B, T, width) and (B, T, D) -> (B, T, D)."""
        summed = add_dropped(residual, self.dense(inner), self.probability, self.training)
        out: Tensor = self.LayerNorm(summed)
        return out


class _Layer(nn.Module):
    """Attention, then a feed-forward layer, each with its residual and norm."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attention = nn.ModuleDict({"self": _Attention(shape), "output": _Output(shape.hidden_size, shape)})
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(shape.hidden_size, shape.intermediate_size)})
        self.output = _Output(shape.intermediate_size, shape)
        self.activation = ACTIVATIONS[shape.hidden_act]

    def forward(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        hidden = self.attention["output"](self.attention["self"](hidden, mask), hidden)
        expanded = self.activation(self.intermediate["dense"](hidden))  # (B, T, F)
        out: Tensor = self.output(expanded, hidden)
        return out
