"""The network. The order of the tokens plays no part.

Cost of a text: 2 n_layer D^2 FLOPs, whatever its length, and one sum over its tokens.

Shape letters: B texts, T tokens, D width.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from lexmill.models.common.dropout import Dropout
from lexmill.models.common.text_encoder import TextEncoder
from lexmill.models.text_mlp.shape import Activation, Shape

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "relu": functional.relu,
    "leaky_relu": functional.leaky_relu,  # of 0.01 x below 0
    "elu": functional.elu,
    "softplus": functional.softplus,
    "swish": functional.silu,
    "gelu": functional.gelu,
    "sine": torch.sin,
}


class TextMLP(TextEncoder):
    """Computes one state of a text, which is that of each of its tokens."""

    def __init__(self, shape: Shape, vocab_size: int) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(vocab_size, shape.d_model)
        self.layers = nn.ModuleList(nn.Linear(shape.d_model, shape.d_model) for _ in range(shape.n_layer))
        self.dropout = Dropout(shape.dropout)

    def hidden(self, tokens: Tensor, mask: Tensor, segments: Tensor | None = None) -> Tensor:
        """Map token ids (B, T) and a mask (B, T), true at real tokens, to (B, T, D).

        Raises:
            ValueError: a text is longer than the positions.
        """
        self.check(tokens)
        real = mask.unsqueeze(-1).to(self.embedding.weight.dtype)  # (B, T, 1)
        state = self.dropout((self.embedding(tokens) * real).sum(dim=1) / real.sum(dim=1).clamp(min=1))  # (B, D)
        for layer in self.layers:
            state = self.dropout(ACTIVATIONS[self.shape.activation](layer(state)))
        return state.unsqueeze(1).expand(-1, tokens.shape[1], -1)

    def activations_read(self) -> dict[str, Callable[[Tensor], Tensor]]:
        """Return the layers after the first: each reads the activation of the one before."""
        activation = ACTIVATIONS[self.shape.activation]
        return {f"layers.{number}": activation for number in range(1, self.shape.n_layer)}
