"""The network: for each position and width k, relu(W e + b) of the k embeddings e around it; zeros beyond the text.

Kim (2014) takes the largest value of each filter over the text: `pooling: max` of a head. His windows lie within the
text; here they also overlap its ends, so that a text shorter than a window has a value and each token a state.

Cost of a token: 2 filters d_embedding (sum of the widths) FLOPs.

Shape letters: B texts, T tokens, E width of the embeddings, D all filters.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from lexmill.models.common.convolutions import Convolution1d
from lexmill.models.common.dropout import Dropout
from lexmill.models.common.text_encoder import TextEncoder
from lexmill.models.text_cnn.shape import Shape


class TextCNN(TextEncoder):
    """Computes hidden states of texts."""

    def __init__(self, shape: Shape, vocab_size: int) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(vocab_size, shape.d_embedding)
        self.dropout = Dropout(shape.dropout)
        self.convolutions = nn.ModuleList(
            Convolution1d(shape.d_embedding, shape.filters, width) for width in shape.widths
        )

    @property
    def d_model(self) -> int:
        """D."""
        return self.shape.filters * len(self.shape.widths)

    def hidden(self, tokens: Tensor, mask: Tensor, segments: Tensor | None = None) -> Tensor:
        """Map token ids (B, T) and a mask (B, T), true at real tokens, to (B, T, D).

        Raises:
            ValueError: a text is longer than the positions.
        """
        self.check(tokens)
        embedded = self.dropout(self.embedding(tokens)) * mask.unsqueeze(-1)  # (B, T, E)
        rows, found = embedded.transpose(1, 2), []
        for width, convolution in zip(self.shape.widths, self.convolutions, strict=True):
            padded = functional.pad(rows, ((width - 1) // 2, width // 2))  # (B, E, T + width - 1)
            found.append(functional.relu(convolution(padded)))
        return torch.cat(found, dim=1).transpose(1, 2)
