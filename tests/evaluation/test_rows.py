"""Rows on disk: what is broken is said with file and line."""

from pathlib import Path

import pytest

from lexmill.base.errors import UserError
from lexmill.evaluation.rows import read_rows, write_rows


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"rows\.jsonl: .*run its evaluate stage"):
        read_rows(tmp_path / "rows.jsonl")


@pytest.mark.parametrize("line", ["{half", "[1]", ""])
def test_a_broken_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"id": 1}\n' + line + "\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"rows\.jsonl:2: "):
        read_rows(path)


def test_nan_is_no_figure(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Out of range"):
        write_rows(tmp_path / "rows.jsonl", [{"nats": float("nan")}])
    assert not (tmp_path / "rows.jsonl").exists()
