"""Phrases whose translation is given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from lexmill.base.errors import UserErrors
from lexmill.kinds.translator.terms import kept_terms, phrases_of
from lexmill.params import parse
from lexmill.params.derived import PARTS

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("Switch the power on", ("Strom",)),
        ("the powerful one", ()),
        ("\u8bf7\u6253\u5f00\u7535\u6e90\u5f00\u5173", ("Netzteil",)),  # without spaces a phrase is found inside
        ("\u6253\u5f00power\u5f00\u5173", ("Strom",)),
        ("power", ("Strom",)),
    ],
)
def test_phrases_are_whole_words_where_a_script_has_spaces(line: str, found: tuple[str, ...]) -> None:
    assert phrases_of(line, [("power", "Strom"), ("\u7535\u6e90", "Netzteil")]) == found


def test_a_translation_keeps_all_terms_of_its_source() -> None:
    pairs = [
        ("Switch the power on", "Strom einschalten"),
        ("Switch the power on", "Einschalten"),
        ("the power of the lamp", "der Strom der Leuchte"),  # one of two
        ("the powerful one", "der starke"),
    ]
    rows = [{"source": source, "hypothesis": made} for source, made in pairs]
    lexicon = [("power", "Strom"), ("lamp", "Lampe")]
    assert kept_terms(rows, lexicon) == {"kept_terms": pytest.approx(1 / 3), "with_terms": 3}
    assert kept_terms(rows[3:], lexicon) == kept_terms(rows, []) == {}


@pytest.mark.parametrize(
    ("evaluate", "error"),
    [
        ({"terms": {"lexicon": {"power supply": " "}}}, "lexicon: 'power supply': ' ' has an empty side"),
        ({"terms": {"forced": True}}, "evaluate.terms.forced: the lexicon is empty; set it to false"),
        (
            {"terms": {"lexicon": {"lamp": "Lampe"}, "forced": True}, "mbr": {"candidates": 4}},
            "evaluate.terms.forced: of a search; candidates are drawn, set evaluate.mbr.candidates to 0",
        ),
    ],
)
def test_what_cannot_be_kept_to_is_refused(evaluate: dict[str, Any], error: str) -> None:
    data = yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8"))
    data = {key: value for key, value in data.items() if key not in PARTS}
    data["models"]["en_de"]["evaluate"] = evaluate
    with pytest.raises(UserErrors) as caught:
        parse(data)
    assert error in str(caught.value)
