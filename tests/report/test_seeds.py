"""Models with several seeds on the page."""

from __future__ import annotations

import pytest

from lexmill.base import layout
from lexmill.base.errors import UserError
from tests.report.project import Project

ENTRY = {
    "corpus": "movie_reviews",
    "of": "0",
    "failed": {"9": "killed (signal 9)"},
    "seeds": [7, 8],
    "test": {"accuracy": {"mean": 0.8576, "deviation": 0.0041, "least": 0.855, "largest": 0.86, "values": []}},
}


def test_the_page_shows_the_mean_and_the_spread_over_seeds(demo: Project) -> None:
    assert "Several seeds" not in demo.page
    demo.json(layout.metrics("seeds", "sentiment"), ENTRY)
    page = demo.page
    assert '<h2 id="seeds">Several seeds</h2>' in page
    assert "0.858 ± 0.004" in page
    assert "0.855 to 0.860" in page
    assert "sentiment: seed 9 failed: killed (signal 9)" in page
    assert "sentiment: its settings have changed since" in page
    assert demo.page == page


def test_a_broken_entry_is_named(demo: Project) -> None:
    demo.json(layout.metrics("seeds", "sentiment"), {"test": 1})
    with pytest.raises(UserError, match=r"metrics/seeds/sentiment\.json"):
        _ = demo.page
