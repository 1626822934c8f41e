"""A training's curve: a row every few steps, losses averaged over the steps since the previous row.

At 800 rows every second one is merged into the next and rows come half as often, and so on: the curve depends on the
steps made, not on those to come, so a longer training can resume it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lexmill.base.storage import write_text

COLUMNS = ("step", "tokens", "epoch", "train_loss", "valid_loss", "lr", "grad_norm", "skipped")
_ROWS = 800


@dataclass
class Curve:
    """Collects (sum, count) of each step and makes rows of them."""

    every: int = 1
    rows: list[dict[str, float]] = field(default_factory=list)
    tokens: int = 0
    loss_sum: float = 0.0
    loss_count: int = 0
    skipped: int = 0
    counts: list[int] = field(default_factory=list)  # the targets behind each row's loss

    def add(self, loss_sum: float, count: int) -> None:
        """Add the summed loss and the number of targets of one optimizer step, over all ranks."""
        self.loss_sum += loss_sum
        self.loss_count += count
        self.tokens += count

    def skip(self, count: int) -> None:
        """Record a skipped step: its targets count as seen, its loss does not count."""
        self.tokens += count
        self.skipped += 1

    def due(self, step: int) -> bool:
        return step % self.every == 0

    def row(self, step: int, epoch: float, lr: float, grad_norm: float | None, valid_loss: float | None) -> None:
        """Close a row after `step` steps."""
        row: dict[str, float] = {"step": step, "tokens": self.tokens, "epoch": epoch, "lr": lr, "skipped": self.skipped}
        if grad_norm is not None:
            row["grad_norm"] = grad_norm
        if self.loss_count:
            row["train_loss"] = self.loss_sum / self.loss_count
        if valid_loss is not None:
            row["valid_loss"] = valid_loss
        self.rows.append(row)
        self.counts.append(self.loss_count)
        self.loss_sum, self.loss_count = 0.0, 0
        if sum("valid_loss" not in one for one in self.rows) > _ROWS:
            self._thin()

    def _thin(self) -> None:
        """Halve the rows; a removed one adds its loss to the next. Those with a validation stay."""
        self.every *= 2
        rows, counts = self.rows, self.counts
        self.rows, self.counts = [], []
        carried, targets = 0.0, 0
        for row, count in zip(rows, counts, strict=True):
            total = row.get("train_loss", 0.0) * count
            if "valid_loss" not in row and not self.due(int(row["step"])):
                carried, targets = carried + total, targets + count
                continue
            whole = {**row, "train_loss": (carried + total) / (targets + count)} if targets else row
            self.rows.append(whole)
            self.counts.append(targets + count)
            carried, targets = 0.0, 0
        self.loss_sum, self.loss_count = carried, targets

    def last(self, column: str) -> float | None:
        """Return the newest value of a column."""
        return next((row[column] for row in reversed(self.rows) if column in row), None)

    def state(self) -> dict[str, Any]:
        return dict(vars(self))

    def restore(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)


def write_csv(path: str | Path, rows: list[dict[str, float]]) -> None:
    """Write the rows as CSV; a value not measured at that step is an empty cell."""
    lines = [COLUMNS, *([_cell(row.get(column)) for column in COLUMNS] for row in rows)]
    write_text(path, "".join(",".join(line) + "\n" for line in lines))


def _cell(value: float | None) -> str:
    return "" if value is None else str(value) if isinstance(value, int) else f"{value:.8g}"
