"""Several encoder-decoders of one vocabulary as one: at each step the mean of their probabilities.

Cost: that of all members. Shape letters: B rows, S source length, T target length, M width of all memories, V
vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from lexmill.base.errors import UserError
from lexmill.decoding.beam_search import DecoderCache, EncoderDecoder


@dataclass
class EnsembleCache:
    """The state of each member."""

    members: list[DecoderCache]

    def reorder(self, rows: Tensor, sources: Tensor | None = None) -> None:
        """See `DecoderCache`."""
        for one in self.members:
            one.reorder(rows, sources)


class Ensemble(nn.Module):
    """Translates as its members do on average; see `EncoderDecoder`.

    Args:
        modules: encoder-decoders in eval mode, of any families.

    Attributes:
        max_positions: those that every member has.
    """

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        super().__init__()
        self.list = nn.ModuleList(modules)
        self.members = [cast(EncoderDecoder, module) for module in modules]
        self.max_positions = min(one.max_positions for one in self.members)
        self.widths: list[int] = []

    def encode(self, source: Tensor, source_mask: Tensor) -> Tensor:
        """Return the members' memories side by side, (B, S, M)."""
        memories = [one.encode(source, source_mask) for one in self.members]
        self.widths = [memory.size(2) for memory in memories]
        return torch.cat(memories, dim=2)

    def new_cache(self, memory: Tensor, source_mask: Tensor) -> EnsembleCache:
        """Return the members' empty caches."""
        parts = memory.split(self.widths, dim=2)
        return EnsembleCache([one.new_cache(part, source_mask) for one, part in zip(self.members, parts, strict=True)])

    def decode(
        self, target_in: Tensor, memory: Tensor, source_mask: Tensor, cache: EnsembleCache | None = None
    ) -> Tensor:
        """Return the log of the mean probability (B, T, V) of the token after each of `target_in` (B, T)."""
        caches = [None] * len(self.members) if cache is None else cache.members
        parts = memory.split(self.widths, dim=2)
        found = [
            one.decode(target_in, part, source_mask, own).float().log_softmax(dim=2)
            for one, part, own in zip(self.members, parts, caches, strict=True)
        ]
        return torch.stack(found).logsumexp(dim=0) - math.log(len(found))

    def alignment(self, source: Tensor, source_mask: Tensor, target_in: Tensor) -> Tensor:
        """Return the mean of the members' attention (B, T, S).

        Raises:
            UserError: a member sees a source as one vector.
        """
        found = [one.alignment(source, source_mask, target_in) for one in self.members]
        if len({one.size(2) for one in found}) > 1:
            raise UserError("a member of the ensemble has no attention over the source")
        return torch.stack(found).mean(dim=0)

    def forward(self, source: Tensor, source_mask: Tensor, target_in: Tensor) -> Tensor:
        """Source (B, S) with its mask and shifted target (B, T) -> log-probabilities (B, T, V)."""
        return self.decode(target_in, self.encode(source, source_mask), source_mask)
