"""The README says what was measured: its tables are the committed results, to the digit."""

import json
import re
from pathlib import Path

import pytest

from lexmill.report.results import Row, markdown

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def rows(experiment: str) -> list[Row]:
    data = json.loads((ROOT / "docs" / "results" / f"{experiment}.json").read_text(encoding="utf-8"))
    assert data["experiment"] == experiment
    return [Row(**{key: value for key, value in row.items() if key != "beats"}) for row in data["results"]]


@pytest.mark.parametrize("experiment", ["demo", "full"])
def test_the_tables_are_the_committed_results(experiment: str) -> None:
    assert markdown(rows(experiment)) in README


def test_the_demo_beats_its_baselines() -> None:
    assert {row.kind for row in rows("demo")} == {"language_model", "classifier", "translator"}
    for row in rows("demo"):
        assert all(row.beats_baseline(name) for name in row.baselines), row


def test_every_page_named_is_there() -> None:
    linked = re.findall(r"\]\(([\w./-]+)\)", README)
    assert len(linked) > 8
    for target in linked:
        assert (ROOT / target).exists(), target


def test_every_page_is_named() -> None:
    for page in sorted((ROOT / "docs").glob("*.md")):
        assert f"docs/{page.name}" in README, page.name
