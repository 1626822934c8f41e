"""A recurrent layer that reads padded texts from both ends, around torch's kernels.

The cell that reads backwards gets each text's own tokens in reverse, so that it begins at the text's last token and not
in the padding after it; the forward cell never sees padding before a real token. So padding changes nothing, without
packing the batch, and torch's kernels (oneDNN on a CPU) read whole rows. The cells are those of Elman (1990), of an
LSTM (Hochreiter and Schmidhuber 1997) or of a GRU (Cho et al. 2014).

Cost: with D_in inputs and a state of K, 2 * gates * K * (D_in + K) multiply-adds a token and layer, step by step.

Shape letters: B texts, T tokens, D width, K width of a direction's state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from lexmill.models.common.kernel_layer import KernelLayer

CellName = Literal["elman", "lstm", "gru"]
_KERNELS: dict[CellName, Callable[..., nn.RNNBase]] = {"elman": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}


class Cell(KernelLayer):
    """A cell that reads in one direction, and the dropout on its states.

    Args:
        name: of the cell.
        inputs, width: D_in and K.
    """

    def __init__(self, name: CellName, inputs: int, width: int, dropout: float) -> None:
        super().__init__(_KERNELS[name](inputs, width, batch_first=True), dropout)

    def along(self, hidden: Tensor) -> Tensor:
        """Map (B, T, D_in) to (B, T, K), from the first token on."""
        states, _ = self.read(hidden, None)
        out: Tensor = self.dropout(states)
        return out

    def draw_weights(self, matrix: Callable[[Tensor], None]) -> None:
        """Draw each gate's matrices separately; biases are 0, an LSTM's forget gate's 1 (Jozefowicz et al. 2015)."""
        super().draw_weights(matrix)
        if self.name == "lstm":
            nn.init.ones_(self.kernel.get_parameter("bias_ih_l0").chunk(4)[1])


class Bidirectional(nn.Module):
    """Both directions, each with its dropout; arguments as of `Cell`."""

    def __init__(self, name: CellName, inputs: int, width: int, dropout: float) -> None:
        super().__init__()
        self.forwards, self.backwards = (Cell(name, inputs, width, dropout) for _ in range(2))

    def forward(self, hidden: Tensor, turned: Tensor) -> Tensor:
        """Map (B, T, D_in) and the order (B, T) of reversed texts to (B, T, 2 K)."""
        onwards, _ = self.forwards.read(hidden, None)  # (B, T, K)
        back, _ = self.backwards.read(in_order(hidden, turned), None)
        return torch.cat([self.forwards.dropout(onwards), self.backwards.dropout(in_order(back, turned))], dim=2)


def reverse_order(mask: Tensor) -> Tensor:
    """Return the places (B, T) of each text's tokens in reverse, padding where it is; its own inverse."""
    places = torch.arange(mask.shape[1], device=mask.device)
    return torch.where(mask, mask.sum(dim=1, keepdim=True) - 1 - places, places)


def in_order(hidden: Tensor, places: Tensor) -> Tensor:
    """Return (B, T, D) with the rows' vectors taken from these places (B, T)."""
    return hidden.gather(1, places[:, :, None].expand_as(hidden))
