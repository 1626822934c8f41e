"""The network: a text is a strip of pixels, 8 high, a cell of `characters` characters for each token.

Three convolutions with padding, each of stride 2, batch norm (Ioffe and Szegedy 2015) and ReLU, take the strip's height
from 8 to 1 and a character's width from 8 to 1; the mean over a token's cell, through one matrix, is its state. Padding
tokens are blank before and after each layer, so no state depends on them, and they have no part in the statistics.
In training these are of the texts that pass together: the micro-batch shapes the result.

Cost of a character: about 2 * 9 * (16 F + 4 * 2 F^2 + 8 F^2) FLOPs with filters of 3 x 3.

Shape letters: B texts, T tokens, D width, F filters, H rows and W columns of pixels, C channels.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from lexmill.models.common.convolutions import Convolution2d
from lexmill.models.common.dropout import Dropout
from lexmill.models.common.text_encoder import TextEncoder
from lexmill.models.pixel_cnn.font import SIZE, drawn
from lexmill.models.pixel_cnn.shape import Shape


class PixelCNN(TextEncoder):
    """Computes hidden states of texts.

    Attributes:
        pixels: each token as drawn, (V, 8, 8 * characters); blank before `draw`.
    """

    pixels: Tensor

    def __init__(self, shape: Shape, vocab_size: int) -> None:
        super().__init__()
        self.shape = shape
        self.register_buffer("pixels", torch.zeros(vocab_size, SIZE, SIZE * shape.characters))
        sizes = [1, shape.filters, 2 * shape.filters, 4 * shape.filters]
        self.layers = nn.ModuleList(_Layer(sizes[i], sizes[i + 1], shape.kernel) for i in range(3))
        self.output = nn.Linear(sizes[-1], shape.d_model)
        self.dropout = Dropout(shape.dropout)

    def draw(self, tokens: Sequence[str]) -> None:
        """Draw each token of the vocabulary from its text."""
        self.pixels.copy_(torch.tensor([drawn(token, self.shape.characters) for token in tokens]))

    def hidden(self, tokens: Tensor, mask: Tensor, segments: Tensor | None = None) -> Tensor:
        """Map token ids (B, T) and a mask (B, T), true at real tokens, to (B, T, D).

        Raises:
            ValueError: a text is longer than the positions.
        """
        self.check(tokens)
        strip = self.pixels[tokens].transpose(1, 2).flatten(2)  # (B, T, H, W) -> (B, H, T W)
        real = mask.repeat_interleave(self.pixels.shape[2], dim=1)  # (B, T W)
        image = (strip * real.unsqueeze(1)).unsqueeze(1)  # (B, 1, H, T W)
        for layer in self.layers:
            real = real[:, ::2]
            image = layer(image, real)
        cells = image.squeeze(2).unflatten(2, (tokens.shape[1], self.shape.characters)).mean(dim=3)  # (B, C, T)
        out: Tensor = self.dropout(functional.relu(self.output(cells.transpose(1, 2))))
        return out


class _Layer(nn.Module):
    """A convolution of stride 2, batch norm over real pixels, ReLU."""

    def __init__(self, inputs: int, outputs: int, kernel: int) -> None:
        super().__init__()
        self.convolution = Convolution2d(inputs, outputs, kernel, stride=2, padding=kernel // 2, bias=False)
        self.norm = nn.BatchNorm1d(outputs)

    def forward(self, image: Tensor, real: Tensor) -> Tensor:
        """(B, C, H, W) and a mask (B, W / 2), true at columns of real tokens -> (B, C', H / 2, W / 2), else blank."""
        found = self.convolution(image).permute(0, 3, 1, 2)  # (B, W, C, H)
        columns = functional.relu(self.norm(found[real]))  # (columns, C, H)
        filled = torch.zeros_like(found, dtype=columns.dtype).masked_scatter(real[:, :, None, None], columns)
        return filled.permute(0, 2, 3, 1)
