"""An echo state network (Jaeger 2001): a recurrent network whose recurrent weights are drawn once and never trained.

Each reservoir reads x_t and its own state h, a vector of leaky units (Jaeger et al. 2007, without noise):

    h_t = (1 - a) h_{t-1} + a tanh(W x_t + U h_{t-1})

W is uniform; of U a share `sparsity` is 0, the rest is normal, and all of it is scaled to its spectral radius. Below 1
the state forgets where it started (the echo state property), as a rule and not by proof. The output matrix, a read-out
of the last reservoir's state, is trained; the embedding is drawn and fixed unless the shape says otherwise. W, U and a
fixed embedding are buffers: weight files and checkpoints have them, optimizers and parameter counts do not.

Cost of a training token: 6 V D FLOPs, and 4 * n_layer * D^2 to run the reservoirs (twice that with a trained
embedding), step by step, in float32 in both precisions; zeros of U are multiplied like any number. With a fixed
embedding nothing is kept for a backward pass. Drawing U takes its eigenvalues, O(D^3): 1 s for D = 1000 on one core.

Shape letters: B batch, T time, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from lexmill.base.errors import UserError
from lexmill.models.common.causal import CausalModel
from lexmill.models.common.init import Xavier
from lexmill.models.common.recurrent import Memory, RecurrentLayer
from lexmill.models.reservoir.shape import Shape


class FixedEmbedding(nn.Embedding):
    """An embedding that is not trained: its table is a buffer."""

    def __init__(self, rows: int, width: int) -> None:
        super().__init__(rows, width)
        table = self.weight.detach()
        del self.weight
        self.register_buffer("weight", table)


class Layer(RecurrentLayer):
    """One reservoir and the dropout on its output; its memory is h alone, (1, B, D)."""

    from_input: Tensor
    from_state: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape.dropout)
        self.shape = shape
        for name in ("from_input", "from_state"):
            self.register_buffer(name, torch.zeros(shape.d_model, shape.d_model))

    def draw_weights(self, matrix: Callable[[Tensor], None]) -> None:
        """Draw W and U by the shape, whatever the recipe.

        Raises:
            UserError: U has only eigenvalues of 0, which no factor scales.
        """
        nn.init.uniform_(self.from_input, -self.shape.input_scale, self.shape.input_scale)
        nn.init.normal_(self.from_state)
        if self.from_state.is_meta or not self.from_state.any():  # counted only, or about to be loaded: not drawn
            return
        fixed = self.from_state.view(-1)
        fixed[torch.randperm(fixed.numel())[: round(self.shape.sparsity * fixed.numel())]] = 0
        radius = spectral_radius(self.from_state)
        if radius < 1e-6:
            raise UserError(
                f"shape.sparsity: with {self.shape.sparsity:g} of its weights 0 a reservoir of {len(self.from_state)}"
                " units has no loop; lower it"
            )
        self.from_state *= self.shape.spectral_radius / radius

    def read(self, hidden: Tensor, memory: Memory | None) -> tuple[Tensor, Memory]:
        """Map (B, T, D) and h before (None: zero) to (B, T, D) and h after."""
        leak, found = self.shape.leak, []
        with torch.autocast(hidden.device.type, enabled=False):  # it would round U again at each step
            steps = linear(hidden.to(self.from_input), self.from_input).unbind(1)
            state = torch.zeros_like(steps[0]) if memory is None else memory[0][0]
            for step in steps:
                state = (1 - leak) * state + leak * torch.tanh(step + linear(state, self.from_state))
                found.append(state)
        return torch.stack(found, dim=1), (state[None],)

    def flops(self, context: int) -> int:
        """Return those of the fixed matrices: forward, and backward to the state and the embedding if it is trained."""
        passes = 2 if self.shape.train_embedding else 1
        return passes * 2 * (self.from_input.numel() + self.from_state.numel())

    def activation_bytes(self, low: int, mask: int, share: float) -> int:
        """Return the bytes per token that autograd keeps, measured on a CPU; see `block.Block`."""
        kept = 4 + (mask if self.dropout.probability else 0)
        return kept * self.shape.d_model if self.shape.train_embedding else 0

    def gradient_bytes(self, low: int) -> int:
        """Return the bytes per token of temporary numbers, as measured on a CPU: in the layer or in the loss."""
        return (16 if low == 4 else 24) * self.shape.d_model


class Reservoir(CausalModel):
    """A causal language model over `vocab_size` tokens."""

    def __init__(self, shape: Shape, vocab_size: int) -> None:
        super().__init__(
            shape,
            vocab_size,
            block=lambda: Layer(shape),
            norm=nn.Identity(),
            recipe=Xavier(embedding_std=1.0),
            tied=False,
        )
        if not shape.train_embedding:
            drawn = self.embedding.weight.detach()
            self.embedding = FixedEmbedding(vocab_size, shape.d_model)
            self.embedding.weight.copy_(drawn)


def spectral_radius(matrix: Tensor) -> float:
    """Return the largest modulus of a square matrix's eigenvalues."""
    return float(torch.linalg.eigvals(matrix.double()).abs().max())
