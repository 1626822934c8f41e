"""The random numbers of texts that are drawn together: a stream for each."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lexmill.base import storage
from lexmill.decoding.settings import Sampling

BLOCK = 256  # steps for which space and random numbers are allocated at once


class Numbers:
    """Random numbers in [0, 1), none if greedy.

    Args:
        streams: a name for each text (B,); the same name gives the same numbers.
        sampling: its temperature says whether it is greedy.
    """

    def __init__(self, streams: Sequence[str], sampling: Sampling, device: torch.device) -> None:
        self.greedy, self.device = sampling.temperature == 0, device
        self.generators: list[torch.Generator] = []
        if self.greedy:
            return
        for name in streams:
            number = int(storage.sha256_bytes(name.encode())[:15], 16)
            self.generators.append(torch.Generator().manual_seed(number))
        self.drawn = self._block(min(sampling.max_tokens, BLOCK))  # (B, steps)

    def _block(self, steps: int) -> Tensor:
        blocks = [torch.rand(steps, generator=generator, dtype=torch.float64) for generator in self.generators]
        return torch.stack(blocks).to(self.device)

    def of(self, steps: Tensor) -> Tensor | None:
        """Each text's number (B,) for its step; steps below 0 are within a prompt, and their number is unused."""
        if self.greedy:
            return None
        if int(steps.max()) >= self.drawn.shape[1]:
            self.drawn = torch.cat([self.drawn, self._block(BLOCK)], dim=1)
        return self.drawn.gather(1, steps.clamp(min=0)[:, None])[:, 0]

    def keep(self, rows: Sequence[int]) -> None:
        """Drop all other texts."""
        if not self.greedy:
            self.generators = [self.generators[row] for row in rows]
            self.drawn = self.drawn[torch.tensor(rows, device=self.device)]
