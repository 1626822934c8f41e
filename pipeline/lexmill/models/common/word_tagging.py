"""The tables that tag whole words.

Shape letters: F features, L tags.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from lexmill.models.common.chain import Chain


class WordTagger(nn.Module):
    """A score of each tag for each feature of words and perhaps for each pair of neighbouring tags, all in float64.

    Args:
        encoder: a table's rows by features.
        n_tags: L.
        chained: whether tags have scores by the tag before them, and at both ends of a sentence.

    Attributes:
        scores: (F + 1, L); the last row is of all features without one.
    """

    scores: Tensor

    def __init__(self, encoder: Any, n_tags: int, *, chained: bool) -> None:
        super().__init__()
        self.encoder = encoder
        self.register_buffer("scores", torch.zeros(encoder.shape.n_feature + 1, n_tags, dtype=torch.float64))
        self.chained = chained
        for name, shape in zip(Chain._fields, ((n_tags, n_tags), (n_tags,), (n_tags,)), strict=True):
            if chained:
                self.register_buffer(name, torch.zeros(shape, dtype=torch.float64))

    @property
    def chain(self) -> Chain | None:
        """The scores beside those of the words."""
        return Chain(*map(self.get_buffer, Chain._fields)) if self.chained else None
