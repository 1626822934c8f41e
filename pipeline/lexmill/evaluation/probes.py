"""Tests of any model that gives sentences probabilities: minimal pairs, and the last words of texts.

A minimal pair is two sentences that differ in what makes one of them unacceptable (Warstadt et al. 2020); a model is
right where it gives the acceptable one the higher probability, half right where both have the same. Of a text whose
last word follows from all of it (Paperno et al. 2016), a model is right where each token of that word is its likeliest.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from lexmill.base.budgets import MAX_LINE_BYTES
from lexmill.base.errors import UserError, UserErrors
from lexmill.base.outside import parse_json
from lexmill.base.shown import value_text
from lexmill.evaluation.bootstrap import Resampling, Weights, resampling_units, with_intervals
from lexmill.evaluation.preferences import preferred
from lexmill.evaluation.rows import Row

_MOST_ERRORS = 20


class Scored(Protocol):
    """What a kind's module `sentences` gives, from a packaged model."""

    def log_probabilities(self, model: Any, texts: Sequence[str]) -> list[float]:
        """Return the natural log-probability of each text, or its substitute."""

    def last_words(self, model: Any, texts: Sequence[tuple[str, str]]) -> list[tuple[bool, float]]:
        """Return for each text, in two parts, whether all tokens of the second are the likeliest, and their nats."""


@dataclass(frozen=True)
class Columns:
    """The columns of a file of minimal pairs; those of BLiMP by default."""

    good: str = "sentence_good"
    bad: str = "sentence_bad"
    phenomenon: str = "UID"


def read_pairs(path: Path, columns: Columns) -> list[dict[str, str]]:
    """Read minimal pairs: JSON lines, or a table (.tsv, .csv) with a header; the phenomenon may be missing.

    Raises:
        UserErrors: what is wrong, line by line.
    """
    found, errors = [], []
    for line, record in _records(path):
        texts = {name: record.get(column) for name, column in vars(columns).items()}
        texts["phenomenon"] = texts["phenomenon"] or ""
        wrong = [name for name in ("good", "bad") if not isinstance(texts[name], str) or not str(texts[name]).strip()]
        if wrong:
            column, shown = getattr(columns, wrong[0]), ", ".join(map(str, record))
            errors.append(UserError(f"no sentence in column '{column}'; there are: {shown}", path, line))
        elif texts["good"] == texts["bad"]:
            errors.append(UserError(f"both sentences are {value_text(texts['good'], 80)}", path, line))
        else:
            found.append({name: str(text) for name, text in texts.items()} | {"id": str(line)})
    if errors:
        raise UserErrors(errors[:_MOST_ERRORS])
    if not found:
        raise UserError("the file holds no pair", path)
    return found


def read_texts(path: Path, column: str) -> list[tuple[str, str]]:
    """Read texts, a line each or in a column of JSON lines or a table, each as what is before its last word, and it.

    Raises:
        UserErrors: what is wrong, line by line.
    """
    if path.suffix in _TABLES:
        lines = [(line, record.get(column)) for line, record in _records(path)]
    else:
        lines = [(i, text) for i, text in enumerate(_text(path).split("\n"), start=1) if text.strip()]
    found, errors = [], []
    for line, text in lines:
        whole = text.rstrip() if isinstance(text, str) else ""
        words = whole.split()
        if len(words) > 1:
            found.append((whole.removesuffix(words[-1]), words[-1]))
        else:
            errors.append(UserError(f"{value_text(text, 80)} is not two words or more", path, line))
    if errors:
        raise UserErrors(errors[:_MOST_ERRORS])
    if not found:
        raise UserError("the file holds no text", path)
    return found


_TABLES = (".jsonl", ".tsv", ".csv")


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
    except FileNotFoundError:
        raise UserError("the file does not exist", path) from None
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", path) from None
    except UnicodeDecodeError as error:
        raise UserError(f"byte {error.start + 1} is not UTF-8; convert the file", path) from None


def _records(path: Path) -> list[tuple[int, Mapping[str, Any]]]:
    """Return the records of a file with their lines; a table has a header."""
    text = _text(path)
    if path.suffix == ".jsonl":
        found: list[tuple[int, Mapping[str, Any]]] = []
        for number, line in enumerate(text.split("\n"), start=1):
            if not line.strip():
                continue
            try:
                record = parse_json(line.encode())
            except UserError:
                record = None
            if not isinstance(record, dict):
                raise UserError(f"{value_text(line, 80)} is not a JSON object", path, number)
            found.append((number, record))
        return found
    if path.suffix not in _TABLES:
        raise UserError(f"its name ends in none of {', '.join(_TABLES)}", path)
    tabs = path.suffix == ".tsv"
    csv.field_size_limit(MAX_LINE_BYTES)  # global to the csv module, so what it is here must not depend on who read
    rows = csv.DictReader(
        io.StringIO(text, newline=""),
        delimiter="\t" if tabs else ",",
        quoting=csv.QUOTE_NONE if tabs else csv.QUOTE_MINIMAL,
    )
    try:
        return [(rows.line_num, {str(key): value for key, value in row.items()}) for row in rows]
    except csv.Error as error:
        raise UserError(f"not a table: {error}", path, rows.reader.line_num) from None


def pair_rows(scored: Scored, model: Any, pairs: Sequence[Mapping[str, str]]) -> list[Row]:
    """Return a row for each pair: {"id", "group", "phenomenon", "good", "bad"}, the two log-probabilities."""
    values = scored.log_probabilities(model, [pair[side] for side in ("good", "bad") for pair in pairs])
    return [
        {"id": pair["id"], "group": pair["id"], "phenomenon": pair["phenomenon"], "good": good, "bad": bad}
        for pair, good, bad in zip(pairs, values[: len(pairs)], values[len(pairs) :], strict=True)
    ]


def word_rows(scored: Scored, model: Any, texts: Sequence[tuple[str, str]]) -> list[Row]:
    """Return a row for each text: {"id", "group", "word", "right", "nats"}."""
    return [
        {"id": str(i), "group": str(i), "word": word, "right": right, "nats": nats}
        for i, ((_, word), (right, nats)) in enumerate(zip(texts, scored.last_words(model, texts), strict=True))
    ]


def pair_metrics(rows: Sequence[Row], how: Resampling) -> dict[str, dict[str, Any]]:
    """Return accuracy with its interval, and the number of pairs, of all pairs ("all") and of each phenomenon."""
    parts: dict[str, list[Row]] = {"all": list(rows)}
    for row in rows:
        if row["phenomenon"]:
            parts.setdefault(row["phenomenon"], []).append(row)
    return {
        name: _share([preferred(row["good"], row["bad"]) for row in part], part, how, "pair") | {"pairs": len(part)}
        for name, part in parts.items()
    }


def word_metrics(rows: Sequence[Row], how: Resampling) -> dict[str, Any]:
    """Return accuracy with its interval, nats a word, and the number of words."""
    found = _share([float(row["right"]) for row in rows], rows, how, "text")
    return found | {"nats_per_word": float(np.mean([row["nats"] for row in rows])), "words": len(rows)}


def _share(right: Sequence[float], rows: Sequence[Row], how: Resampling, unit: str) -> dict[str, Any]:
    values = np.array(right)

    def score(weights: Weights) -> dict[str, float]:
        return {"accuracy": float(weights @ values / weights.sum())}

    return with_intervals(score(np.ones(len(rows), dtype=np.int64)), score, resampling_units(rows, unit, unit), how)
