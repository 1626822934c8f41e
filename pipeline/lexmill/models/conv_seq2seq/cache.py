"""The decoder's state between steps: the inputs that each convolution still sees.

Shape letters: B rows, S source length, D width of the blocks, E width of the embedding, K tokens of a kernel.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass
class ConvCache:
    """What the next step reads.

    Attributes:
        keys, values: of the source, (sources, S, E).
        real: (sources, S), true at tokens.
        seen: the last inputs of each block, (B, K - 1, D), zeros before the first token.
        length: target positions seen so far.
    """

    keys: Tensor
    values: Tensor
    real: Tensor
    seen: list[Tensor]
    length: int = 0

    @property
    def sources(self) -> int:
        """The number of sources."""
        return self.keys.size(0)

    def reorder(self, rows: Tensor, sources: Tensor | None = None) -> None:
        """See `encoder_decoder.Cache`."""
        self.seen = [part.index_select(0, rows) for part in self.seen]
        if sources is not None:
            kept = (part.index_select(0, sources) for part in (self.keys, self.values, self.real))
            self.keys, self.values, self.real = kept
