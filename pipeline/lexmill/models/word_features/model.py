"""A table's rows by features of words. A feature is a text; 64 bits of its SHA-256 stand for it.

Cost: a look-up of constant time a feature; memory 8 bytes a feature here, some 100 while it is in use. Of a million
features the chance that two have the same bits is 3e-8.

Shape letter: F features.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor, nn

from lexmill.models.word_features.shape import Shape


class WordFeatures(nn.Module):
    """The rows of features.

    Attributes:
        keys: (F,) int64, rising.
    """

    keys: Tensor

    def __init__(self, shape: Shape, vocab_size: int) -> None:
        super().__init__()
        self.shape = shape
        self.register_buffer("keys", torch.arange(shape.n_feature))

    def learn(self, features: Sequence[str]) -> list[int]:
        """Take F different features; return the place in `features` of each row's."""
        numbers = [_key(one) for one in features]
        order = sorted(range(len(numbers)), key=numbers.__getitem__)
        self.keys.copy_(torch.tensor([numbers[i] for i in order]))
        return order

    @cached_property
    def _rows(self) -> dict[int, int]:
        return {key: row for row, key in enumerate(self.keys.tolist())}

    def row(self, feature: str) -> int:
        """Return a feature's row; F: it has none."""
        return self._rows.get(_key(feature), self.shape.n_feature)


def _key(feature: str) -> int:
    return int.from_bytes(hashlib.sha256(feature.encode("utf-8")).digest()[:8], "big", signed=True)
