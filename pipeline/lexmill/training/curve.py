"""A training's curve: a row every few steps, losses averaged over the steps since the row before.

It grows to 800 rows, then every second one is merged into the next and rows come half as often, and so on: what it
holds is a function of the steps made, not of the steps to come, so that a longer training can go on with it.
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
        """The summed loss and the number of targets of one optimizer step, over all ranks."""
        self.loss_sum += loss_sum
        self.loss_count += count
        self.tokens += count

    def skip(self, count: int) -> None:
        """A step was not taken: its targets were seen, its loss counts nowhere."""
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
        """Rows half as often; one that goes gives its loss to the next. Those with a validation stay."""
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
        """The newest value of a column."""
        return next((row[column] for row in reversed(self.rows) if column in row), None)

    def state(self) -> dict[str, Any]:
        return {
            "every": self.every,
            "rows": self.rows,
            "counts": self.counts,
            "tokens": self.tokens,
            "loss_sum": self.loss_sum,
            "loss_count": self.loss_count,
            "skipped": self.skipped,
        }

    def restore(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)


def write_csv(path: str | Path, rows: list[dict[str, float]]) -> None:
    """The rows as CSV; an empty cell where a value was not measured at that step."""
    lines = [",".join(COLUMNS)]
    for row in rows:
        lines.append(",".join(_cell(row.get(column)) for column in COLUMNS))
    write_text(path, "\n".join(lines) + "\n")


def _cell(value: float | None) -> str:
    return "" if value is None else str(value) if isinstance(value, int) else f"{value:.8g}"
