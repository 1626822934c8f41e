"""The floor of a translator: the source, copied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lexmill.evaluation.rows import Row
from lexmill.evaluation.translation import translator_rows


def copy_source(test: Sequence[dict[str, Any]], language: str) -> list[Row]:
    """Rows of a translator that gives each source back; names, numbers and placeholders then score."""
    return translator_rows(test, [record["source"] for record in test], language)
