"""What the trainings of one model of a comparison amount to."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from lexmill.commands.compare import grid
from lexmill.commands.trainings.seeded import Trial
from lexmill.report.comparison_charts import METRIC


def losses(tried: Mapping[int, Trial | None]) -> dict[int, float | None]:
    """Return the validation losses of a grid, by power."""
    return {power: None if trial is None else trial.valid_loss for power, trial in tried.items()}


def summary(tried: Mapping[int, Trial | None], seeds: Sequence[Trial]) -> dict[str, Any]:
    """Return what the trainings of one model amount to.

    Args:
        tried: the grid's, by power; None: a rate out of bounds.
        seeds: those at the best rate, one a seed; they may have failed.

    Returns:
        bits_per_byte is the mean over seeds, `interval` the mean of their bootstrap intervals, `spread` the sample
        standard deviation over seeds (None with one seed); all None where no training succeeded.
    """
    done = [trial for trial in seeds if METRIC in trial.metrics]
    values = [float(trial.metrics[METRIC]) for trial in done]
    ends = [[float(trial.metrics[f"{METRIC}_{end}"]) for trial in done] for end in ("low", "high")]
    first = done[0].training if done else {}
    power = grid.best(losses(tried))
    chosen = None if power is None else tried[power]
    return {
        METRIC: statistics.fmean(values) if values else None,
        "interval": [statistics.fmean(one) for one in ends] if values else None,
        "spread": statistics.stdev(values) if len(values) > 1 else None,
        "by_seed": {str(trial.values["training_seed"]): trial.metrics.get(METRIC) for trial in seeds},
        "rate": None if chosen is None else chosen.values["rate"],
        "rate_at_edge": power is not None and grid.at_edge(losses(tried)),
        "valid_loss_by_rate": {f"{one.values['rate']:g}": one.valid_loss for one in tried.values() if one is not None},
        "steps": first.get("steps"),
        "tokens": first.get("tokens"),
        "failed": sorted({one.message for one in [*tried.values(), *seeds] if one is not None and one.message}),
    }
