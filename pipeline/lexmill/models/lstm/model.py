"""A stack of long short-term memory layers (Hochreiter and Schmidhuber 1997), regularised as in Zaremba et al. 2014.

Each layer reads x_t and its own state (h, c):

    i, f, o = sigmoid(W x_t + U h_{t-1} + b)   each with its own rows of W, U, b
    c_t = f * c_{t-1} + i * tanh(W_c x_t + U_c h_{t-1} + b_c),    h_t = o * tanh(c_t)

and passes h_t to the next. Dropout acts on the embedding and on each layer's output, never between time steps.
The output matrix is the embedding (Press and Wolf 2017) unless the shape says otherwise.

Cost: 6 * (8 * n_layer * D^2 + V * D) FLOPs a training token, step by step through torch's kernel (oneDNN on a CPU);
memory O(B * T * n_layer * D).

Shape letters: B batch, T time, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from lexmill.models.common import kernel_layer
from lexmill.models.common.kernel_layer import KernelLayer, RecurrentModel
from lexmill.models.lstm.shape import Shape


class Layer(KernelLayer):
    """One recurrent layer and the dropout on its output."""

    def __init__(self, d_model: int, dropout: float) -> None:
        super().__init__(nn.LSTM(d_model, d_model, batch_first=True), dropout)

    def draw_weights(self, matrix: Callable[[Tensor], None]) -> None:
        """Draw each gate's matrices separately; biases are 0, the forget gate's 1 (Jozefowicz et al. 2015)."""
        super().draw_weights(matrix)
        first = self.kernel.get_parameter("bias_ih_l0")  # torch adds two biases: one of them is enough
        nn.init.ones_(first.chunk(4)[1])

    def activation_bytes(self, low: int, mask: int = 0, share: float = 1.0) -> int:
        """Return the bytes per token that autograd keeps, measured with this CPU's oneDNN; see `block.Block`."""
        low = low if kernel_layer.has_bf16_kernel() else 4
        return (66 if low == 4 else 46) * self.width + (2 * low * self.width if self.dropout.probability else 0)

    def gradient_bytes(self, low: int) -> int:
        """Return the bytes per token of temporary gradients inside the layer, as measured on a CPU."""
        return 28 * self.width


class LSTM(RecurrentModel):
    """A causal language model over `vocab_size` tokens."""

    def __init__(self, shape: Shape, vocab_size: int) -> None:
        super().__init__(shape, vocab_size, lambda: Layer(shape.d_model, shape.dropout))
