"""The decoder's cache between steps, so that a step costs one position, not all of them.

Memory: 2 * layers * D * (B * T + sources * S) numbers. Shape letters: B rows (sources times beams), H heads, T
positions decoded so far, S source length, K head width.
"""

from __future__ import annotations

from torch import Tensor

from lexmill.models.common.attention import KeyValueCache


class TransformerCache:
    """Keys and values of each decoder layer: those of the target so far, and those of the source, which never change.

    Args:
        source: each layer's source keys and values, (sources, H, S, K).
        mask: which source positions may be attended, (sources, 1, 1, S); None: all.
    """

    def __init__(self, source: list[tuple[Tensor, Tensor]], mask: Tensor | None) -> None:
        self.source, self.mask = source, mask
        self.layers = [KeyValueCache(capacity=16) for _ in source]

    @property
    def length(self) -> int:
        """Target positions seen so far."""
        return self.layers[0].length

    @property
    def sources(self) -> int:
        """The number of sources."""
        return self.source[0][0].size(0)

    def reorder(self, rows: Tensor, sources: Tensor | None = None) -> None:
        """See `encoder_decoder.Cache`."""
        for layer in self.layers:
            layer.reorder(rows)
        if sources is not None:
            self.source = [(k.index_select(0, sources), v.index_select(0, sources)) for k, v in self.source]
            self.mask = None if self.mask is None else self.mask.index_select(0, sources)
