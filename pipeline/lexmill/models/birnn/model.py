"""A bidirectional recurrent encoder: two cells a layer, one for each direction, and their states side by side.

Shape letters: B texts, T tokens, D width.
"""

from __future__ import annotations

from torch import Tensor, nn

from lexmill.models.birnn.shape import Shape
from lexmill.models.common.bidirectional import Bidirectional, reverse_order
from lexmill.models.common.dropout import Dropout
from lexmill.models.common.init import Xavier, initialize
from lexmill.models.common.text_encoder import TextEncoder


class BiRNN(TextEncoder):
    """Computes hidden states of texts."""

    def __init__(self, shape: Shape, vocab_size: int) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(vocab_size, shape.d_embedding)
        self.dropout = Dropout(shape.dropout)
        widths = [shape.d_embedding] + [2 * shape.d_state] * (shape.n_layer - 1)
        self.layers = nn.ModuleList(Bidirectional(shape.cell, width, shape.d_state, shape.dropout) for width in widths)
        initialize(self, Xavier(embedding_std=shape.d_embedding**-0.5))

    @property
    def d_model(self) -> int:
        """D."""
        return 2 * self.shape.d_state

    @property
    def init_std(self) -> float:
        """The standard deviation of a head's initial weights."""
        return float(self.d_model**-0.5)

    def hidden(self, tokens: Tensor, mask: Tensor, segments: Tensor | None = None) -> Tensor:
        """Map token ids (B, T) and a mask (B, T), true at real tokens, which come first, to (B, T, D).

        Raises:
            ValueError: a text is longer than the positions.
        """
        self.check(tokens)
        turned = reverse_order(mask)
        hidden: Tensor = self.dropout(self.embedding(tokens))
        for layer in self.layers:
            hidden = layer(hidden, turned)
        return hidden
