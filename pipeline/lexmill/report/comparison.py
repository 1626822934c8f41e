"""The comparison of models on equal terms (`lexmill compare`): its table, for the page, the terminal and the docs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from lexmill.base import layout
from lexmill.base.errors import UserError
from lexmill.report import read
from lexmill.report.comparison_charts import METRIC, cost_against_length, length_text, quality_against_compute
from lexmill.report.results import rounded

_HEADS = ("model", "bits per byte", "seed spread", "parameters", "training FLOPs", "training tokens/s")
_NONE = "–"


@dataclass(frozen=True)
class Shown:
    """A comparison for the page.

    Attributes:
        terms: what all models had in common.
        heads, rows, notes: of the table, the best model first.
        quality, cost: the two pictures; None without a point.
    """

    terms: str
    heads: list[str]
    rows: list[list[str]]
    notes: list[str]
    quality: Markup | None
    cost: Markup | None


def collect(root: Path) -> Shown | None:
    """Return the comparison of a workspace; None without one.

    Raises:
        UserError: its file is broken.
    """
    path = root / layout.COMPARISON
    found = read.json_object(path)
    try:
        return None if found is None else show(found)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        raise UserError("not a comparison; `lexmill compare` makes it anew", path) from None


def show(comparison: Mapping[str, Any]) -> Shown:
    """Return a comparison's table and pictures."""
    models = sorted(comparison["models"], key=lambda row: (row[METRIC] is None, row[METRIC] or 0.0, row["preset"]))
    lengths = sorted(map(int, models[0]["lengths"]))
    at = [length_text(length) for length in lengths]
    return Shown(
        terms=_terms(comparison),
        heads=[*_HEADS, *(f"tokens/s at {one}" for one in at), *(f"cache at {one}" for one in at)],
        rows=[_cells(row, lengths) for row in models],
        notes=[note for row in models for note in _notes(row)],
        quality=quality_against_compute(models),
        cost=cost_against_length(models),
    )


def markdown(shown: Shown) -> str:
    """Return the table in Markdown with its terms above and its notes below."""
    lines = [shown.terms, "", _line(shown.heads), _line(["---", *["---:"] * (len(shown.heads) - 1)])]
    lines += map(_line, shown.rows)
    return "\n".join([*lines, "", *(f"* {note}" for note in shown.notes)]).rstrip() + "\n"


def _terms(comparison: Mapping[str, Any]) -> str:
    machine, seeds = comparison["machine"], len(comparison["seeds"])
    return (
        f"Budget: {comparison['budget'] or 'as each preset says'}. Corpus {comparison['corpus']}, tokenizer"
        f" {comparison['tokenizer']}, context {comparison['context']} tokens; {seeds} seed{'s' * (seeds != 1)} at the"
        f" best of three to six rates, a factor of {comparison['factor']:g} apart. Measured on {machine['name']},"
        f" {machine['threads']} thread{'s' * (machine['threads'] != 1)}, torch {machine['torch']}."
    )


def _cells(row: Mapping[str, Any], lengths: Sequence[int]) -> list[str]:
    value, ends, spread = row[METRIC], row["interval"], row["spread"]
    found = [
        row["preset"],
        _NONE if value is None else f"{rounded(value)} [{rounded(ends[0])}, {rounded(ends[1])}]",
        _NONE if spread is None else f"±{rounded(spread)}",
        f"{row['parameters']:,}",
        _NONE if row["training_flops"] is None else f"{row['training_flops']:.2e}",
        _NONE if row["tokens_per_second"] is None else f"{row['tokens_per_second']:,.0f}",
    ]
    costs = [row["lengths"][str(length)] for length in lengths]
    found += [_NONE if "reason" in one else f"{one['generation_tokens_per_second']:,.0f}" for one in costs]
    return found + [_NONE if "reason" in one else _size(one["cache_bytes"]) for one in costs]


def _notes(row: Mapping[str, Any]) -> list[str]:
    name = row["preset"]
    found = [f"{name}: a training failed: {message}" for message in row["failed"]]
    if row["rate_at_edge"]:
        found.append(f"{name}: the best rate, {row['rate']:g}, is at the edge of its grid")
    reasons: dict[str, list[str]] = {}
    for length in sorted(map(int, row["lengths"])):
        if "reason" in (one := row["lengths"][str(length)]):
            reasons.setdefault(one["reason"], []).append(length_text(length))
    return found + [f"{name}: {', '.join(at)} tokens are not possible: {why}" for why, at in reasons.items()]


def _size(count: int) -> str:
    """Return bytes as text: 12.0 kB, 3.1 MB."""
    return f"{count / 1e6:,.1f} MB" if count >= 1e6 else f"{count / 1e3:,.1f} kB"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
