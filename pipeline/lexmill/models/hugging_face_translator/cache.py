"""The decoder's cache of `transformers`, for rows that share a source.

Memory: 2 * layers * D * (B * T + B * S) numbers; unlike `transformer`'s, each row has its source's keys and values.
Shape letters: B rows (sources times beams), S source length, T target positions so far, D width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class HuggingFaceCache:
    """What each decoder layer has seen of the target so far, and of the source.

    Args:
        memory: (sources, S, D).
        mask: (sources, S), true at tokens.
        begun: target positions before those that are counted.
    """

    def __init__(self, memory: Tensor, mask: Tensor, begun: int) -> None:
        from transformers import DynamicCache, EncoderDecoderCache

        self.memory, self.mask, self.begun, self.sources = memory, mask, begun, memory.size(0)
        self.state: Any = EncoderDecoderCache(DynamicCache(), DynamicCache())

    @property
    def length(self) -> int:
        """Target positions seen so far."""
        return max(0, int(self.state.get_seq_length()) - self.begun)

    def spread(self, rows: int) -> None:
        """Give each of `rows` rows its source; consecutive rows share one."""
        if rows != self.memory.size(0):
            self._select(torch.arange(self.sources, device=self.memory.device), rows)

    def reorder(self, rows: Tensor, sources: Tensor | None = None) -> None:
        """See `encoder_decoder.Cache`."""
        for layer in self.state.self_attention_cache.layers:
            _keep(layer, rows)
        if sources is not None or len(rows) != self.memory.size(0):
            self._select(torch.arange(self.sources, device=rows.device) if sources is None else sources, len(rows))

    def _select(self, sources: Tensor, rows: int) -> None:
        """Keep these sources, each for as many of the rows."""
        places = (sources * (self.memory.size(0) // self.sources)).repeat_interleave(rows // len(sources))
        self.memory, self.mask, self.sources = self.memory[places], self.mask[places], len(sources)
        for layer in self.state.cross_attention_cache.layers:
            _keep(layer, places)


def _keep(layer: Any, rows: Tensor) -> None:
    """Keep these rows of a layer's keys and values, (B, H, T, K)."""
    layer.keys, layer.values = layer.keys.index_select(0, rows), layer.values.index_select(0, rows)
