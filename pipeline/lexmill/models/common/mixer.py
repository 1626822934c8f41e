"""What the causal skeleton needs of a mixer, and what a module may declare about its parameters.

Shape letters: B batch, T time, D width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol

from torch import Tensor, nn

Split = dict[str, Literal["columns", "rows"]]
Layout = tuple[int, int]


class State(Protocol):
    """One layer's state after the text so far."""

    @property
    def length(self) -> int:
        """Positions seen so far."""

    def reorder(self, rows: Tensor) -> None:
        """Keep the batch rows `rows` (int64, (new B,)), in that order; repeats allowed (beam search)."""


class Mixer(Protocol):
    """A causal layer over a sequence, (B, T, D) -> (B, T, D)."""

    @property
    def unlimited(self) -> bool:
        """Whether it reads text of any length at the same cost per token."""

    def shared(self, tokens: Tensor, start: int, documents: Tensor | None) -> Any:
        """Return what all layers use in one pass (masks, rotations): plain tensors.

        Args:
            tokens: (B, T).
            start: the position of the first.
            documents: (B, T) int64, the document of each position; None: each row is one document.
        """

    def new_state(self, capacity: int) -> State:
        """Return an empty state; `capacity` hints how many positions will follow."""

    def flops(self, context: int) -> int:
        """Return the FLOPs of a training token at full context, not counting 6 for each weight of a matrix."""

    def split(self) -> Split | None:
        """Return how tensor parallelism splits its linear layers, by outputs or inputs; None: not at all."""


class Part(Protocol):
    """What any module may declare about its own parameters; each method is optional."""

    def fused_parts(self) -> dict[str, Layout]:
        """Return the weights made of several matrices: path -> (groups, parts).

        The rows of such a weight are (groups, parts, rows of a part in a group): one group per head with its query, key
        and value; one group for the gates of an LSTM. Each part is initialised and orthogonalised separately.
        """

    def activations_read(self) -> dict[str, Callable[[Tensor], Tensor]]:
        """Return the linear layers that read an activation's output: path -> activation, for Kaiming's gain."""

    def draw_weights(self, matrix: Callable[[Tensor], None]) -> None:
        """Initialise parameters outside linear layers, embeddings and norms; `matrix` draws one matrix."""


def fused_layouts(module: nn.Module) -> dict[str, Layout]:
    """Return the layout (groups, parts) of each fused weight in the module, as its owner declares it."""
    found: dict[str, Layout] = {}
    for path, child in module.named_modules():
        if hasattr(child, "fused_parts"):
            prefix = f"{path}." if path else ""
            found |= {f"{prefix}{name}": layout for name, layout in child.fused_parts().items()}
    return found
