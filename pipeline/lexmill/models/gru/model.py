"""A stack of layers of gated recurrent units (Cho et al. 2014): an LSTM's idea with two gates and no second state.

Each layer reads x_t and its own state h:

    r, z = sigmoid(W x_t + U h_{t-1} + b)      each with its own rows of W, U, b
    n = tanh(W_n x_t + b_n + r * (U_n h_{t-1} + c_n)),    h_t = (1 - z) * n + z * h_{t-1}

and passes h_t to the next. The reset gate r acts after the product with U_n, as in the paper's second version and in
cuDNN, so that one product serves all gates.

Cost: 6 * (6 * n_layer * D^2 + V * D) FLOPs a training token, step by step through torch's kernel; memory
O(B * T * n_layer * D). Three quarters of an LSTM's products, yet on a CPU a layer of it takes 1.8 times as long (65 ms
to 35 ms for 16 windows of 128 tokens, width 256, forward and backward): oneDNN has a kernel for the LSTM only.

Shape letters: B batch, T time, D width, V vocabulary.
"""

from __future__ import annotations

from torch import nn

from lexmill.models.common import kernel_layer
from lexmill.models.common.kernel_layer import KernelLayer, RecurrentModel
from lexmill.models.gru.shape import Shape


class Layer(KernelLayer):
    """One recurrent layer and the dropout on its output."""

    def __init__(self, d_model: int, dropout: float) -> None:
        super().__init__(nn.GRU(d_model, d_model, batch_first=True), dropout)

    def activation_bytes(self, low: int, mask: int, share: float) -> int:
        """Return the bytes per token that autograd keeps, measured on a CPU; see `block.Block`."""
        low = low if kernel_layer.has_bf16_kernel() else 4
        return ((32 if low == 4 else 18) + (mask if self.dropout.probability else 0)) * self.width

    def gradient_bytes(self, low: int) -> int:
        """Return the bytes per token of temporary gradients inside the layer, as measured on a CPU."""
        return (18 if low == 4 else 28) * self.width


class GRU(RecurrentModel):
    """A causal language model over `vocab_size` tokens."""

    def __init__(self, shape: Shape, vocab_size: int) -> None:
        super().__init__(shape, vocab_size, lambda: Layer(shape.d_model, shape.dropout))
