"""What all mixers of the family have: states, projections, output norm and gate.

Shape letters: B batch, T time, D width, H heads, K head width, X any width of a head.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from lexmill.models.common.chunked_state import chunked
from lexmill.models.common.counted import CountedMixer
from lexmill.models.common.matrix_state import Terms, step
from lexmill.models.common.mixer import Layout
from lexmill.models.common.norms import RMSNorm
from lexmill.models.common.row_sizes import RowSizes
from lexmill.models.common.rows.shared import Shared, shared_parts
from lexmill.models.common.short_convolution import ShortConvolution


class LayerState:
    """What a layer keeps after the text so far, tensors by name, each with B rows; its size does not grow."""

    def __init__(self) -> None:
        self.length = 0
        self.parts: dict[str, Tensor] = {}

    def reorder(self, rows: Tensor) -> None:
        """Keep the batch rows `rows` (int64, (new B,)), in that order; repeats allowed (beam search)."""
        self.parts = {name: part.index_select(0, rows) for name, part in self.parts.items()}


class StateMixer(CountedMixer):
    """A mixer with a `LayerState`."""

    def shared(self, tokens: Tensor, start: int, documents: Tensor | None) -> Shared:
        """Return what any layer needs."""
        return shared_parts(self.shape, tokens, start, documents)

    def split(self) -> None:
        """Return None: heads share norms and gates that are not cut."""

    def new_state(self, capacity: int) -> LayerState:
        """Return a zero state."""
        return LayerState()


class LinearMixer(StateMixer):
    """Projections, a state, a norm for each head, an optional gate, the output matrix; a row says what lies between."""

    unlimited: ClassVar[bool] = True
    gated: ClassVar[Literal["", "silu", "sigmoid"]] = ""  # f: the normed output is multiplied by f(W x)
    normed: ClassVar[bool] = True
    convolved: ClassVar[bool] = False
    parts: ClassVar[int] = 3  # projections of width H * K: query, key, value

    def __init__(self, shape: RowSizes) -> None:
        super().__init__()
        self.shape = shape
        inner = shape.n_head * shape.head_width
        self.projections = nn.Linear(shape.d_model, self.parts * inner, bias=False)
        used = self.convolved and shape.kernel
        self.convolution = ShortConvolution(self.parts * inner, shape.kernel) if used else None
        self.gate = nn.Linear(shape.d_model, inner, bias=False) if self.gated else None
        self.norm = RMSNorm(shape.head_width) if self.normed else None
        self.output = nn.Linear(inner, shape.d_model, bias=False)

    def forward(self, hidden: Tensor, shared: Shared, state: LayerState | None = None) -> Tensor:
        """(B, T, D) -> (B, T, D); updates the state."""
        projected = self.projections(hidden)
        if self.convolution is not None:
            before = None if state is None else state.parts.get("convolution")
            projected, last = self.convolution(projected, before, shared.places)
            projected = silu(projected)
            if state is not None:
                state.parts["convolution"] = last
        heads = [precise(part) for part in self.heads(projected).chunk(self.parts, 1)]
        out = self.mix(hidden, heads, shared, state)  # (B, H, T, K)
        if state is not None:
            state.length += hidden.shape[1]
        out = out if self.norm is None else self.norm(out)
        out = out.transpose(1, 2).flatten(2).to(projected.dtype)
        if self.gate is not None:
            gate = self.gate(hidden)
            out = out * (silu(gate) if self.gated == "silu" else gate.sigmoid())
        mixed: Tensor = self.output(out)
        return mixed

    def heads(self, rows: Tensor) -> Tensor:
        """(B, T, H * X) -> (B, H, T, X)."""
        return rows.unflatten(-1, (-1, self.shape.head_width)).transpose(1, 2)

    def mix(self, hidden: Tensor, heads: list[Tensor], shared: Shared, state: LayerState | None) -> Tensor:
        """Return what is read from the state: (B, T, D) and projections (B, H, T, K) -> (B, H, T, K)."""
        raise NotImplementedError

    def run(self, terms: Terms, shared: Shared, state: LayerState | None, name: str = "matrix") -> Tensor:
        """Return the outputs, (B, H, T, V); `name` is that of the state's part."""
        with exact(terms.value.device):
            before = terms.new_state() if state is None or name not in state.parts else state.parts[name]
            if terms.value.shape[2] == 1 and shared.starts is None:
                out, after = step(terms, before)
            else:
                out, after = chunked(terms, before, self.shape.chunk, shared.starts)
        if state is not None:
            state.parts[name] = after
        return out

    def fused_parts(self) -> dict[str, Layout]:
        """Return the projections: all queries, all keys, all values."""
        return {"projections.weight": (1, self.parts)} if self.parts > 1 else {}


def precise(part: Tensor) -> Tensor:
    """Return a tensor in at least float32: sums over a whole text need it."""
    return part.float() if part.dtype in (torch.bfloat16, torch.float16) else part


def exact(device: torch.device) -> AbstractContextManager[Any]:
    """Return a context without autocast: products of matrices in the precision of their factors."""
    available = torch.amp.is_autocast_available(device.type)
    return torch.autocast(device.type, enabled=False) if available else nullcontext()
