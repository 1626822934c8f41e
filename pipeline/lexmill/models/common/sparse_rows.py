"""Rows of numbers most of which are 0, and their products with a matrix.

Shape letters: N rows, F columns, L outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class SparseRows:
    """The numbers that are not 0, row after row.

    Attributes:
        starts: (N + 1,) int64, where each row begins in the other two, and their length.
        columns: int64.
        values: as many.
        width: F.
    """

    starts: Tensor
    columns: Tensor
    values: Tensor
    width: int

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def rows(self) -> Tensor:
        """The row of each number, int64."""
        return torch.repeat_interleave(torch.arange(len(self), device=self.starts.device), self.starts.diff())

    def row(self, number: int) -> tuple[Tensor, Tensor]:
        """Return columns and values of a row."""
        start, end = self.starts[number : number + 2].tolist()
        return self.columns[start:end], self.values[start:end]

    def dense(self) -> Tensor:
        """Return all numbers, (N, F)."""
        found = self.values.new_zeros(len(self), self.width)
        found[self.rows, self.columns] = self.values
        return found

    def cpu_doubles(self) -> SparseRows:
        """Return the rows in main memory, in float64."""
        return SparseRows(self.starts.cpu(), self.columns.cpu(), self.values.cpu().double(), self.width)


Rows = Tensor | SparseRows


def linear(rows: Rows, weight: Tensor, bias: Tensor) -> Tensor:
    """Return `rows` (N, F) times a matrix (L, F), plus (L,): (N, L)."""
    if isinstance(rows, Tensor):
        return functional.linear(rows, weight, bias)
    summed = functional.embedding_bag(
        rows.columns, weight.t(), rows.starts[:-1], mode="sum", per_sample_weights=rows.values.to(weight.dtype)
    )
    return summed + bias


def width_of(rows: Rows) -> int:
    """Return F."""
    return rows.shape[1] if isinstance(rows, Tensor) else rows.width


def joined(parts: Sequence[SparseRows]) -> SparseRows:
    """Return the rows of all parts, one after the other; there is at least one part."""
    sizes = torch.cat([part.starts.diff() for part in parts])
    starts = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
    columns, values = (torch.cat([getattr(part, name) for part in parts]) for name in ("columns", "values"))
    return SparseRows(starts, columns, values, parts[0].width)
