"""A stack of long short-term memory layers (Hochreiter and Schmidhuber 1997), regularised as in Zaremba et al. 2014.

Each layer reads x_t and its own state (h, c):

    i, f, o = sigmoid(W x_t + U h_{t-1} + b)   each with its own rows of W, U, b
    c_t = f * c_{t-1} + i * tanh(W_c x_t + U_c h_{t-1} + b_c),    h_t = o * tanh(c_t)

and passes h_t to the next. Dropout acts on the embedding and on each layer's output, never between time steps.
The output matrix is the embedding (Press and Wolf 2017) unless the shape says otherwise.

Cost: 6 * (8 * n_layer * D^2 + V * D) FLOPs a training token, step by step through torch's kernel (oneDNN on a CPU);
memory O(B * T * n_layer * D). In bf16-mixed the layers compute in float32 on a processor for which oneDNN has no
kernel in bf16 (AVX2 only): torch's own one takes eleven times as long there as float32.

Shape letters: B batch, T time, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import cache

import torch
from torch import Tensor, nn

from lexmill.models.common.causal import CausalModel
from lexmill.models.common.hashed_ngrams import hashed_ngrams
from lexmill.models.common.init import Xavier
from lexmill.models.common.mixer import Layout
from lexmill.models.common.recurrent import Memory, RecurrentLayer
from lexmill.models.lstm.shape import Shape


@cache
def has_bf16_kernel() -> bool:
    """Return whether this processor's oneDNN has an LSTM in bf16; it can only be tried."""
    one, matrix, bias = (torch.zeros(shape, device="cpu") for shape in ((1, 1, 8), (32, 8), (32,)))
    try:
        with torch.autocast("cpu", torch.bfloat16):
            torch.lstm(one, (one, one), [matrix, matrix, bias, bias], True, 1, 0.0, False, False, True)
    except RuntimeError:
        return False
    return True


class Layer(RecurrentLayer):
    """One recurrent layer and the dropout on its output."""

    def __init__(self, d_model: int, dropout: float) -> None:
        super().__init__(dropout)
        self.lstm = nn.LSTM(d_model, d_model, batch_first=True)

    def read(self, hidden: Tensor, memory: Memory | None) -> tuple[Tensor, Memory]:
        """Map (B, T, D) and (h, c) before (None: zero) to (B, T, D) and (h, c) after."""
        exact = hidden.device.type == "cpu" and torch.is_autocast_enabled("cpu") and not has_bf16_kernel()
        with torch.autocast("cpu", enabled=False) if exact else nullcontext():
            out: tuple[Tensor, Memory] = self.lstm(hidden.float() if exact else hidden, memory)
        return out

    def fused_parts(self) -> dict[str, Layout]:
        """Return the input, forget, cell and output gate."""
        return {"lstm.weight_ih_l0": (1, 4), "lstm.weight_hh_l0": (1, 4)}

    def draw_weights(self, matrix: Callable[[Tensor], None]) -> None:
        """Draw each gate's matrices separately; biases are 0, the forget gate's 1 (Jozefowicz et al. 2015)."""
        for name, value in self.lstm.named_parameters():
            if value.ndim == 2:
                for gate in value.chunk(4):
                    matrix(gate)
            else:
                nn.init.zeros_(value)
                if name == "bias_ih_l0":  # torch adds two biases: one of them is enough
                    nn.init.ones_(value.chunk(4)[1])

    def activation_bytes(self, low: int, mask: int = 0, share: float = 1.0) -> int:
        """Return the bytes per token that autograd keeps, measured with this CPU's oneDNN; see `block.Block`."""
        width = self.lstm.hidden_size
        low = low if has_bf16_kernel() else 4
        return (65 if low == 4 else 45) * width + (2 * low * width if self.dropout.probability else 0)

    def gradient_bytes(self, low: int) -> int:
        """Return the bytes per token of temporary gradients inside the layer, as measured on a CPU."""
        return 28 * self.lstm.hidden_size


class LSTM(CausalModel):
    """A causal language model over `vocab_size` tokens."""

    def __init__(self, shape: Shape, vocab_size: int) -> None:
        super().__init__(
            shape,
            vocab_size,
            block=lambda: Layer(shape.d_model, shape.dropout),
            norm=nn.Identity(),
            recipe=Xavier(embedding_std=shape.d_model**-0.5),
            tied=shape.tie_embeddings,
            ngrams=hashed_ngrams(shape.ngram_order, shape.ngram_rows, shape.d_model),
        )
