"""Convolutions whose filters a recipe of initial weights draws as rows of a matrix."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn


class Convolution1d(nn.Conv1d):
    """`nn.Conv1d`."""

    def draw_weights(self, matrix: Callable[[Tensor], None]) -> None:
        """Draw the filters, each a row of its inputs; biases are 0."""
        _draw(self, matrix)


class Convolution2d(nn.Conv2d):
    """`nn.Conv2d`."""

    def draw_weights(self, matrix: Callable[[Tensor], None]) -> None:
        """See `Convolution1d`."""
        _draw(self, matrix)


def _draw(module: nn.Conv1d | nn.Conv2d, matrix: Callable[[Tensor], None]) -> None:
    matrix(module.weight.view(len(module.weight), -1))
    if module.bias is not None:
        nn.init.zeros_(module.bias)
