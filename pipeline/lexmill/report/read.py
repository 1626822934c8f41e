"""Read files of other stages. A missing file gives None or nothing; a broken one is an error that names it."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lexmill.base import storage
from lexmill.base.errors import UserError

_AGAIN = "`lexmill run` makes it anew"


def json_object(path: Path) -> dict[str, Any] | None:
    """Read a JSON object; return None if there is no such file.

    Raises:
        UserError: the file is not a JSON object.
    """
    try:
        data = storage.read_json(path)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise UserError(f"not valid JSON ({error}); {_AGAIN}", path) from None
    if not isinstance(data, dict):
        raise UserError(f"expected a JSON object; {_AGAIN}", path)
    return data


def number(value: Any) -> float | None:
    """Return a finite number as a float, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def curve(path: Path) -> dict[str, list[tuple[float, float]]]:
    """Read a training curve: column -> [(step, value)]; empty cells and cells that are not finite are left out.

    Raises:
        UserError: a cell is no number, or a row has no step; names the line.
    """
    points: dict[str, list[tuple[float, float]]] = {}
    if not path.is_file():
        return points
    with open(path, encoding="utf-8", newline="") as stream:
        reader = csv.DictReader(stream)
        try:
            for row in reader:
                step = float(row["step"])
                for column, cell in row.items():
                    if column != "step" and cell and math.isfinite(value := float(cell)):
                        points.setdefault(column, []).append((step, value))
        except (KeyError, TypeError, ValueError, csv.Error):
            raise UserError(f"not a training curve; {_AGAIN}", path, reader.line_num) from None
    return points


def pictures(folder: Path) -> list[Path]:
    """Return the PNG files of a folder, by name; none if there is no such folder."""
    return sorted(folder.glob("*.png")) if folder.is_dir() else []


def mapping(value: Any) -> Mapping[str, Any]:
    """Return the value if it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else {}
