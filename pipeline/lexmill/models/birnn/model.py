"""A bidirectional recurrent encoder: two cells a layer, one for each direction, and their states side by side.

The cell that reads backwards gets each text's own tokens in reverse, so that it begins at the text's last token and not
in the padding after it; the forward cell never sees padding before a real token. So padding changes nothing, without
packing the batch, and torch's kernels (oneDNN on a CPU) read whole rows. The cells are those of Elman (1990), of an
LSTM (Hochreiter and Schmidhuber 1997) or of a GRU (Cho et al. 2014).

Cost: with D_in inputs and a state of K, 2 * gates * K * (D_in + K) multiply-adds a token and layer, step by step.

Shape letters: B texts, T tokens, D width, K width of a direction's state.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from lexmill.models.birnn.shape import Shape
from lexmill.models.common.dropout import Dropout
from lexmill.models.common.init import Xavier, initialize
from lexmill.models.common.kernel_layer import KernelLayer
from lexmill.models.common.text_encoder import TextEncoder

_KERNELS: dict[str, Callable[[int, int], nn.RNNBase]] = {
    "elman": partial(nn.RNN, batch_first=True),
    "lstm": partial(nn.LSTM, batch_first=True),
    "gru": partial(nn.GRU, batch_first=True),
}


class BiRNN(TextEncoder):
    """Computes hidden states of texts."""

    def __init__(self, shape: Shape, vocab_size: int) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(vocab_size, shape.d_embedding)
        self.dropout = Dropout(shape.dropout)
        widths = [shape.d_embedding] + [2 * shape.d_state] * (shape.n_layer - 1)
        self.layers = nn.ModuleList(_Layer(shape, width) for width in widths)
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


class _Layer(nn.Module):
    """Both directions, each with its dropout."""

    def __init__(self, shape: Shape, width: int) -> None:
        super().__init__()
        kernel = _KERNELS[shape.cell]
        self.forwards, self.backwards = (_Cell(kernel(width, shape.d_state), shape.dropout) for _ in range(2))

    def forward(self, hidden: Tensor, turned: Tensor) -> Tensor:
        """Map (B, T, D_in) and the order (B, T) of reversed texts to (B, T, 2 K)."""
        onwards, _ = self.forwards.read(hidden, None)  # (B, T, K)
        back, _ = self.backwards.read(in_order(hidden, turned), None)
        return torch.cat([self.forwards.dropout(onwards), self.backwards.dropout(in_order(back, turned))], dim=2)


class _Cell(KernelLayer):
    """The cell of one direction and the dropout on its states."""

    def draw_weights(self, matrix: Callable[[Tensor], None]) -> None:
        """Draw each gate's matrices separately; biases are 0, an LSTM's forget gate's 1 (Jozefowicz et al. 2015)."""
        super().draw_weights(matrix)
        if self.name == "lstm":
            nn.init.ones_(self.kernel.get_parameter("bias_ih_l0").chunk(4)[1])


def reverse_order(mask: Tensor) -> Tensor:
    """Return the places (B, T) of each text's tokens in reverse, padding where it is; its own inverse."""
    places = torch.arange(mask.shape[1], device=mask.device)
    return torch.where(mask, mask.sum(dim=1, keepdim=True) - 1 - places, places)


def in_order(hidden: Tensor, places: Tensor) -> Tensor:
    """Return (B, T, D) with the rows' vectors taken from these places (B, T)."""
    return hidden.gather(1, places[:, :, None].expand_as(hidden))
