"""The decoder's state between steps; its size does not grow with the target.

Shape letters: B rows, S source length, D width of the states, E width of the embedding.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from lexmill.models.common.recurrent import Memory


@dataclass
class RecurrentCache:
    """What the next step reads.

    Attributes:
        memory: the source's states, (sources, S, D); without attention the last one, (sources, 1, D).
        keys: what the score reads of them, (sources, S, D).
        real: (sources, S), true at tokens.
        states: of each layer.
        fed: what the last step gave the output projection, (B, E); only for input feeding.
        length: target positions seen so far.
    """

    memory: Tensor
    keys: Tensor
    real: Tensor
    states: list[Memory]
    fed: Tensor
    length: int = 0

    @property
    def sources(self) -> int:
        """The number of sources."""
        return self.memory.size(0)

    def spread(self, rows: int) -> None:
        """Give each of `rows` target rows the state of its source, before the first step."""
        times = rows // self.sources
        if times > 1 and self.length == 0:
            self.states = [tuple(part.repeat_interleave(times, dim=1) for part in layer) for layer in self.states]
            self.fed = self.fed.repeat_interleave(times, dim=0)

    def reorder(self, rows: Tensor, sources: Tensor | None = None) -> None:
        """See `encoder_decoder.Cache`."""
        self.states = [tuple(part.index_select(1, rows) for part in layer) for layer in self.states]
        self.fed = self.fed.index_select(0, rows)
        if sources is not None:
            self.memory, self.keys, self.real = (
                x.index_select(0, sources) for x in (self.memory, self.keys, self.real)
            )
