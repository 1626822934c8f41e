"""What two texts do not share is marked, and all of it stays text."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from lexmill.report.differences import marked
from lexmill.report.svg import clean


def test_by_hand() -> None:
    reference, translation = "Das Licht ist <aus>.", "Das Licht war an, ist <aus>."
    assert marked(reference, translation) == "Das Licht ist &lt;aus&gt;."
    assert marked(translation, reference) == "Das Licht<mark> war an,</mark> ist &lt;aus&gt;."
    assert marked("ein Hund", "ein Haus") == "ein <mark>Hund</mark>"
    assert marked("", "ein Haus") == ""


@given(st.text(max_size=40), st.text(max_size=40))
def test_nothing_is_lost_and_equal_texts_have_no_mark(text: str, other: str) -> None:
    found = marked(text, other)
    assert Markup(re.sub("</?mark>", "", found)).unescape() == clean(text)
    assert "<mark>" not in marked(text, text)
