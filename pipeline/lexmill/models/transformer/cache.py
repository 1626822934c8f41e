"""The decoder's cache between steps, so that a step costs one position, not all of them.

Memory: 2 * layers * G * K * (B * T + sources * S) numbers; where the decoder has a state in place of self-attention,
that state for each of B rows in place of B * T. Shape letters: B rows (sources times beams), G key and value heads, T
positions decoded so far, S source length, K head width.
"""

from __future__ import annotations

from torch import Tensor

from lexmill.models.common.mixer import State


class TransformerCache:
    """Each decoder layer's state after the target so far, and its keys and values of the source, which never change.

    Args:
        source: each layer's source keys and values, (sources, G, S, K).
        mask: which source positions may be attended, (sources, 1, 1, S); None: all.
        layers: the empty states.
    """

    def __init__(self, source: list[tuple[Tensor, Tensor]], mask: Tensor | None, layers: list[State]) -> None:
        self.source, self.mask, self.layers = source, mask, layers

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
