"""A recurrent layer around one of torch's kernels (`nn.LSTM`, `nn.GRU`, `nn.RNN`), and a language model of them.

In bf16-mixed the layers compute in float32 on a processor for which oneDNN has no kernel in bf16 (AVX2 only): torch's
own ones take seven (GRU, RNN) to eleven times (LSTM) as long there as float32.

Shape letters: B batch, T time, D width.
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
from lexmill.models.common.recurrent_shape import RecurrentSizes


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


class KernelLayer(RecurrentLayer):
    """One of torch's recurrent layers and the dropout on its output.

    Args:
        kernel: of one layer and one direction, batch first; the model's files name it `lstm`, `gru` or `rnn`.
    """

    def __init__(self, kernel: nn.RNNBase, dropout: float) -> None:
        super().__init__(dropout)
        self.name = type(kernel).__name__.lower()
        self.add_module(self.name, kernel)
        self.width = kernel.hidden_size
        self.gates = kernel.get_parameter("weight_ih_l0").size(0) // self.width

    @property
    def kernel(self) -> nn.RNNBase:
        """The layer of torch."""
        found: nn.RNNBase = getattr(self, self.name)
        return found

    def read(self, hidden: Tensor, memory: Memory | None) -> tuple[Tensor, Memory]:
        """Map (B, T, D) and the memory before (None: zero) to (B, T, D) and the memory after."""
        exact = hidden.device.type == "cpu" and torch.is_autocast_enabled("cpu") and not has_bf16_kernel()
        state = memory[0] if memory is not None and self.name != "lstm" else memory
        with torch.autocast("cpu", enabled=False) if exact else nullcontext():
            out, after = self.kernel(hidden.float() if exact else hidden, state)
        return out, after if self.name == "lstm" else (after,)

    def fused_parts(self) -> dict[str, Layout]:
        """Return the gates, if there are several."""
        fused = (f"{self.name}.weight_ih_l0", f"{self.name}.weight_hh_l0")
        return dict.fromkeys(fused, (1, self.gates)) if self.gates > 1 else {}

    def draw_weights(self, matrix: Callable[[Tensor], None]) -> None:
        """Draw each gate's matrices separately; biases are 0."""
        for value in self.kernel.parameters():
            if value.ndim == 2:
                for gate in value.chunk(self.gates):
                    matrix(gate)
            else:
                nn.init.zeros_(value)


class RecurrentModel(CausalModel):
    """A causal language model of recurrent layers over `vocab_size` tokens."""

    def __init__(self, shape: RecurrentSizes, vocab_size: int, layer: Callable[[], RecurrentLayer]) -> None:
        super().__init__(
            shape,
            vocab_size,
            block=layer,
            norm=nn.Identity(),
            recipe=Xavier(embedding_std=shape.d_model**-0.5),
            tied=shape.tie_embeddings,
            ngrams=hashed_ngrams(shape.ngram_order, shape.ngram_rows, shape.d_model),
        )
