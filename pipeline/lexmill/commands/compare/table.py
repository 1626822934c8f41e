"""The results of a comparison as a Markdown table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lexmill.commands.compare.subjects import METRIC
from lexmill.report.results import rounded
from lexmill.report.svg import tick_text

_HEADS = ("model", "bits per byte", "seed spread", "parameters", "training FLOPs", "training tokens/s")


def markdown(comparison: Mapping[str, Any]) -> str:
    """Return a table with a row a model, the best first, and sentences on what it leaves out."""
    rows = comparison["models"]
    lengths = [int(one) for one in rows[0]["lengths"]]
    heads = [*_HEADS, *(f"tokens/s at {tick_text(one)}" for one in lengths)]
    heads += [f"cache at {tick_text(one)}" for one in lengths]
    lines = [_line(heads), _line(["---", *["---:"] * (len(heads) - 1)])]
    lines += [_line(_cells(row, lengths)) for row in ranked(rows)]
    notes = [note for row in ranked(rows) for note in _notes(row)]
    return "\n".join([*lines, "", *(f"* {note}" for note in notes)]).rstrip() + "\n"


def ranked(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Sort models by bits per byte, those without last."""
    return sorted(rows, key=lambda row: (row[METRIC] is None, row[METRIC] or 0.0, row["preset"]))


def _cells(row: Mapping[str, Any], lengths: Sequence[int]) -> list[str]:
    value, ends, spread = row[METRIC], row["interval"], row["spread"]
    found = [
        row["preset"],
        "–" if value is None else f"{rounded(value)} [{rounded(ends[0])}, {rounded(ends[1])}]",
        "–" if spread is None else f"±{rounded(spread)}",
        f"{row['parameters']:,}",
        "–" if row["training_flops"] is None else f"{row['training_flops']:.2e}",
        "–" if row["tokens_per_second"] is None else f"{row['tokens_per_second']:,.0f}",
    ]
    at = [row["lengths"].get(str(length), {}) for length in lengths]
    found += [f"{one['generation_tokens_per_second']:,.0f}" if "cache_bytes" in one else "–" for one in at]
    found += [_size(one["cache_bytes"]) if "cache_bytes" in one else "–" for one in at]
    return found


def _notes(row: Mapping[str, Any]) -> list[str]:
    name = row["preset"]
    found = [f"{name}: a training failed: {message}" for message in row["failed"]]
    if row["rate_at_edge"]:
        found.append(f"{name}: the best rate, {row['rate']:g}, lies at the edge of its grid")
    reasons: dict[str, list[str]] = {}
    for length, one in row["lengths"].items():
        if "reason" in one:
            reasons.setdefault(one["reason"], []).append(tick_text(int(length)))
    found += [f"{name}: {' and '.join(at)} tokens not possible: {reason}" for reason, at in reasons.items()]
    return found


def _size(count: int) -> str:
    """Return bytes as text: 12 kB, 3.1 MB."""
    return f"{count / 1e6:,.1f} MB" if count >= 1e6 else f"{count / 1e3:,.1f} kB"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
