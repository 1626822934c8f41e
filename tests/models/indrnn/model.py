"""The network. Shape letters: B batch, T time, D width."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lexmill.models.common.causal import CausalModel
from lexmill.models.common.init import Xavier
from lexmill.models.common.recurrent import Memory, RecurrentLayer
from lexmill.models.indrnn.shape import Shape


class Layer(RecurrentLayer):
    """One layer, step by step; its memory is the tuple of h alone, (1, B, D)."""

    def __init__(self, d_model: int, dropout: float) -> None:
        super().__init__(dropout)
        self.from_input = nn.Linear(d_model, d_model)
        self.from_state = nn.Parameter(torch.ones(d_model))  # u; no recipe draws it

    def read(self, hidden: Tensor, memory: Memory | None) -> tuple[Tensor, Memory]:
        """Map (B, T, D) and h before (None: zero) to (B, T, D) and h after."""
        steps = self.from_input(hidden).unbind(1)
        state = torch.zeros_like(steps[0]) if memory is None else memory[0][0]
        found = []
        for step in steps:
            state = torch.tanh(step + self.from_state * state)
            found.append(state)
        return torch.stack(found, dim=1), (state[None],)

    def activation_bytes(self, low: int, mask: int, share: float) -> float:
        """Bytes per token that autograd keeps: the state, the input rounded (`low` bytes a number), the mask."""
        return (4 + low + (mask if self.dropout.probability else 0)) * self.from_input.in_features

    def gradient_bytes(self, low: int) -> int:
        """Bytes per token of the gradients of state and input."""
        return 8 * self.from_input.in_features


class IndRNN(CausalModel):
    """A causal language model over `vocab_size` tokens."""

    def __init__(self, shape: Shape, vocab_size: int) -> None:
        super().__init__(
            shape,
            vocab_size,
            block=lambda: Layer(shape.d_model, shape.dropout),
            norm=nn.Identity(),
            recipe=Xavier(embedding_std=shape.d_model**-0.5),
        )
