"""The simpler simple recurrent unit (Kim et al. 2019), a causal layer whose state is one vector.

    f_t = sigmoid(W_f x_t + b),  c_t = f_t (.) c_{t-1} + (1 - f_t) (.) W x_t,  o_t = max(0, c_t)

Cost: 2 * D^2 multiply-adds a token, all tokens at once, and an elementwise scan; a step of decoding costs the same at
any length.

Shape letters: B batch, T time, D width.
"""

from __future__ import annotations

from torch import Tensor, nn

from lexmill.models.common.diagonal_scan import scan
from lexmill.models.common.recurrent import Memory, RecurrentLayer
from lexmill.models.common.rows.layer import precise


class SSRU(RecurrentLayer):
    """The layer over a sequence; its memory is c, (1, B, D)."""

    def __init__(self, width: int) -> None:
        super().__init__(dropout=0.0)
        self.forget = nn.Linear(width, width)
        self.write = nn.Linear(width, width, bias=False)

    def read(self, hidden: Tensor, memory: Memory | None) -> tuple[Tensor, Memory]:
        """Map (B, T, D) and the memory before (None: zero) to (B, T, D) and the memory after."""
        forget = precise(self.forget(hidden)).sigmoid().transpose(0, 1)  # (T, B, D)
        write = (1 - forget) * precise(self.write(hidden)).transpose(0, 1)
        states = scan(forget, write, write.new_zeros(write.shape[1:]) if memory is None else memory[0][0])
        return states.relu().transpose(0, 1), (states[-1:],)
