"""A training's curve: one row every few steps, losses averaged over the steps since the row before."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lexmill.storage import write_text

COLUMNS = ("step", "tokens", "epoch", "train_loss", "valid_loss", "lr", "grad_norm")
_ROWS = 400


@dataclass
class Curve:
    """Collects (sum, count) of each step and makes rows of them."""

    every: int
    rows: list[dict[str, float]] = field(default_factory=list)
    tokens: int = 0
    loss_sum: float = 0.0
    loss_count: int = 0

    @classmethod
    def of_length(cls, steps: int) -> Curve:
        """A curve of about 400 rows at most, whatever the number of steps."""
        return cls(every=max(1, steps // _ROWS))

    def add(self, loss_sum: float, count: int) -> None:
        """The summed loss and the number of targets of one optimizer step, over all ranks."""
        self.loss_sum += loss_sum
        self.loss_count += count
        self.tokens += count

    def due(self, step: int) -> bool:
        return step % self.every == 0

    def row(self, step: int, epoch: float, lr: float, grad_norm: float, valid_loss: float | None) -> None:
        """Close a row after `step` steps."""
        row = {"step": step, "tokens": self.tokens, "epoch": epoch, "lr": lr, "grad_norm": grad_norm}
        if self.loss_count:
            row["train_loss"] = self.loss_sum / self.loss_count
        if valid_loss is not None:
            row["valid_loss"] = valid_loss
        self.rows.append(row)
        self.loss_sum, self.loss_count = 0.0, 0

    def last(self, column: str) -> float | None:
        """The newest value of a column."""
        return next((row[column] for row in reversed(self.rows) if column in row), None)

    def state(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "tokens": self.tokens,
            "loss_sum": self.loss_sum,
            "loss_count": self.loss_count,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.rows, self.tokens = state["rows"], state["tokens"]
        self.loss_sum, self.loss_count = state["loss_sum"], state["loss_count"]


def write_csv(path: str | Path, rows: list[dict[str, float]]) -> None:
    """The rows as CSV; an empty cell where a value was not measured at that step."""
    lines = [",".join(COLUMNS)]
    for row in rows:
        lines.append(",".join(_cell(row.get(column)) for column in COLUMNS))
    write_text(path, "\n".join(lines) + "\n")


def _cell(value: float | None) -> str:
    return "" if value is None else str(value) if isinstance(value, int) else f"{value:.8g}"
