"""What the causal skeleton asks of the layer that mixes positions, and of a block around one.

Shape letters: B batch, T time, D width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol

from torch import Tensor

Split = dict[str, Literal["columns", "rows"]]
Layout = tuple[int, int]


class State(Protocol):
    """What one layer remembers of the text so far."""

    @property
    def length(self) -> int:
        """Positions seen so far."""

    def reorder(self, rows: Tensor) -> None:
        """Keep the batch rows `rows` (int64, (new B,)), in that order, repeats allowed: a beam's choice."""


class Mixer(Protocol):
    """A causal layer over a sequence, (B, T, D) -> (B, T, D)."""

    @property
    def unlimited(self) -> bool:
        """Whether it reads text of any length at the same cost a token."""

    def shared(self, tokens: Tensor, start: int, documents: Tensor | None) -> Any:
        """What all layers use in one pass (masks, rotations): plain tensors.

        Args:
            tokens: (B, T).
            start: the position of the first.
            documents: (B, T) int64, the document of each position; None: all of one row are one.
        """

    def new_state(self, capacity: int) -> State:
        """An empty state; `capacity` is a hint of the positions to come."""

    def flops(self, context: int) -> int:
        """FLOPs of training a token at full context, beside 6 for each weight of a matrix."""

    def split(self) -> Split | None:
        """How tensor parallelism shares out its linear layers, by their outputs or inputs; None: it cannot."""


class Part(Protocol):
    """What any module may say of the parameters that it owns; what it does not say has a default."""

    def fused_parts(self) -> dict[str, Layout]:
        """Weights made of several matrices: path -> (groups, parts).

        The rows of such a weight are (groups, parts, rows of a part in a group): query, key and value of one head are
        together, the gates of an LSTM are one group. Each part is initialised and orthogonalised alone.
        """

    def activations_read(self) -> dict[str, Callable[[Tensor], Tensor]]:
        """Linear layers that read the output of an activation: path -> the activation, for Kaiming's gain."""

    def draw_weights(self, matrix: Callable[[Tensor], None]) -> None:
        """Set the first values of parameters that are in no linear layer, embedding or norm; `matrix` draws one."""
