"""A stack of simple recurrent layers (Elman 1990), the first recurrent language model (Mikolov et al. 2010).

Each layer reads x_t and its own state h:

    h_t = f(W x_t + U h_{t-1} + b),    f = tanh or relu

and passes h_t to the next. Through k steps a gradient is multiplied by k matrices U^T diag(f'): with tanh it vanishes,
or explodes for large U (Bengio et al. 1994; Pascanu et al. 2013). With relu, U starts as the identity, so that an
untrained state neither fades nor grows by itself (Le, Jaitly and Hinton 2015).

Cost: 6 * (2 * n_layer * D^2 + V * D) FLOPs a training token, step by step through torch's kernel; memory
O(B * T * n_layer * D).

Shape letters: B batch, T time, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from lexmill.models.common import kernel_layer
from lexmill.models.common.kernel_layer import KernelLayer, RecurrentModel
from lexmill.models.elman.shape import Shape


class Layer(KernelLayer):
    """One recurrent layer and the dropout on its output."""

    def __init__(self, d_model: int, dropout: float, activation: str) -> None:
        super().__init__(nn.RNN(d_model, d_model, nonlinearity=activation, batch_first=True), dropout)

    def draw_weights(self, matrix: Callable[[Tensor], None]) -> None:
        """Draw both matrices; biases are 0, the recurrent matrix of relu is the identity."""
        super().draw_weights(matrix)
        if self.kernel.mode == "RNN_RELU":
            nn.init.eye_(self.kernel.get_parameter("weight_hh_l0"))

    def activation_bytes(self, low: int, mask: int, share: float) -> int:
        """Return the bytes per token that autograd keeps, measured on a CPU; see `block.Block`."""
        low = low if kernel_layer.has_bf16_kernel() else 4
        return (2 * low + (min(mask, low) if self.dropout.probability else 0)) * self.width

    def gradient_bytes(self, low: int) -> int:
        """Return the bytes per token of temporary gradients inside the layer, as measured on a CPU."""
        return (18 if low == 4 else 24) * self.width


class Elman(RecurrentModel):
    """A causal language model over `vocab_size` tokens."""

    def __init__(self, shape: Shape, vocab_size: int) -> None:
        super().__init__(shape, vocab_size, lambda: Layer(shape.d_model, shape.dropout, shape.activation))
