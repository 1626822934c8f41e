"""Keys and values of source and target, between steps.

Memory: 2 * layers * G * K * B * (S + T) numbers: each row has its source's too.

Shape letters: B rows, S source length, T target positions so far, G key and value heads, K head width.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass
class Held:
    """A layer's keys and values, (B, G, S + T, K) each; None before the first."""

    keys: Tensor | None = None
    values: Tensor | None = None

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add those of further positions; return all."""
        if self.keys is not None and self.values is not None:
            keys, values = torch.cat([self.keys, keys], dim=2), torch.cat([self.values, values], dim=2)
        self.keys, self.values = keys, values
        return keys, values

    def select(self, rows: Tensor) -> None:
        """Keep these rows, (new B,) int64."""
        if self.keys is not None and self.values is not None:
            self.keys, self.values = self.keys.index_select(0, rows), self.values.index_select(0, rows)


@dataclass
class TranslatorCache:
    """What the next step reads.

    Attributes:
        layers: of each layer.
        real: which source positions are tokens, (B, S) bool.
        sources: their number, as many as rows before the first step.
        length: target positions seen so far.
    """

    layers: list[Held]
    real: Tensor
    sources: int = field(init=False)
    length: int = 0

    def __post_init__(self) -> None:
        self.sources = len(self.real)

    def spread(self, rows: int) -> None:
        """Before the first step: give each of the rows (int, a multiple of the sources) its source."""
        if rows > len(self.real):
            owner = torch.arange(self.sources, device=self.real.device).repeat_interleave(rows // self.sources)
            self.reorder(owner)

    def seen(self, time: int) -> Tensor:
        """Return what each of the next `time` tokens may attend to: (B, 1, T, S + length + T) bool."""
        own = torch.ones(time, self.length + time, dtype=torch.bool, device=self.real.device).tril(self.length)
        source = self.real[:, None].expand(-1, time, -1)
        return torch.cat([source, own.expand(len(self.real), -1, -1)], dim=2)[:, None]

    def reorder(self, rows: Tensor, sources: Tensor | None = None) -> None:
        """See `encoder_decoder.Cache`."""
        for layer in self.layers:
            layer.select(rows)
        self.real = self.real.index_select(0, rows)
        if sources is not None:
            self.sources = len(sources)
