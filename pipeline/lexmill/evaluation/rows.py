"""Rows: one JSON line for each item of the test split, in corpus order.

Language model  {"id", "group", "nats", "targets", "bytes", "words", "unknown", "text_sha256"}, a row a block of text
Classifier      {"id", "group", "label", "predicted", "probabilities": {label: p}}
Tags of words   {"id", "group", "tags", "predicted", "hits", "text_sha256"}, a row a sentence
Translator      {"id", "group", "source", "reference", "hypothesis", "bleu_stats", "chrf_stats", "ter_stats"}
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lexmill.base.errors import UserError
from lexmill.base.storage import write_text

Row = dict[str, Any]


def write_rows(path: str | Path, rows: Iterable[Row]) -> None:
    """Write rows as JSON lines (keys sorted, NaN refused), whole or not at all."""
    lines = (json.dumps(row, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n" for row in rows)
    write_text(path, "".join(lines))


def read_rows(path: str | Path) -> list[Row]:
    """Read rows; lines end at "\\n" only, because text may hold U+2028.

    Raises:
        UserError: the file is missing, or a line is not a JSON object (with its number).
    """
    rows: list[Row] = []
    try:
        with open(path, encoding="utf-8", newline="\n") as stream:
            for number, line in enumerate(stream, start=1):
                try:
                    row = json.loads(line)
                except json.JSONDecodeError as error:
                    raise UserError(f"not JSON: {error.msg}; evaluate the model again", path, number) from None
                if not isinstance(row, dict):
                    raise UserError("not a JSON object; evaluate the model again", path, number)
                rows.append(row)
    except FileNotFoundError:
        raise UserError("the rows of this evaluation are missing; run its evaluate stage", path) from None
    return rows


def spread(items: int, wanted: int) -> list[int]:
    """The indices of at most `wanted` of `items`, evenly spread from the first on."""
    count = min(items, wanted)
    return [i * items // count for i in range(count)]
