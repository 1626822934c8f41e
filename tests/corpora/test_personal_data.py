"""Personal data in text: what is found, by hand-worked cases; masked or dropped, and counted by kind."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from lexmill.corpora.prepared import PreparedCorpus
from lexmill.corpora.preparing.personal_data import first_kind, masked
from lexmill.corpora.preparing.prepare import prepare
from tests.corpora.made_sources import corpus_of, make_source


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("write to ann.o'hara+list@mail.example.org.", "write to ann.o'<email>."),
        ("Bob <bob_1@example.co.uk>, now", "Bob <<email>>, now"),
        ("a@b, @user, user@, x@y.z and a @ b.com", "a@b, @user, user@, x@y.z and a @ b.com"),
        # Luhn: 4539 1488 0343 6467: doubled 8 10 6+... sums to 80; the last digit changed gives 81.
        ("card 4539 1488 0343 6467!", "card <card>!"),
        ("card 4539 1488 0343 6468!", "card 4539 1488 0343 6468!"),
        ("4539-1488-0343-6467 and 4539148803436467", "<card> and <card>"),
        ("Amex 3782 822463 10005", "Amex <card>"),
        ("mixed 4539-1488 0343-6467", "mixed 4539-1488 0343-6467"),
        ("isbn 9780306406157, id 1234567890123", "isbn 9780306406157, id 1234567890123"),
        ("0.4539148803436467", "0.4539148803436467"),
        ("call +49 30 1234567 or 0049 (30) 123 45 67", "call <phone> or <phone>"),
        ("+44 (0)20 7946 0958, (555) 123-4567, 555-123-4567", "<phone>, <phone>, <phone>"),
        ("(030) 1234567; 0171 1234567; 030/1234567.", "<phone>; <phone>; <phone>."),
        (
            "from 1999-2000, on 2024-01-02, 10.000.000, 1 234 567",
            "from 1999-2000, on 2024-01-02, 10.000.000, 1 234 567",
        ),
        ("+1 is odd, 192.168.100.100, 12-345-6789", "+1 is odd, 192.168.100.100, 12-345-6789"),
    ],
)
def test_what_is_found(text: str, expected: str) -> None:
    counts: Counter[str] = Counter()
    assert masked(text, counts) == expected
    assert counts == {kind: n for kind in ("email", "card", "phone") if (n := expected.count(f"<{kind}>"))}
    assert (first_kind(text) is None) == (expected == text)
    assert masked(expected, Counter()) == expected


TEXTS = [
    "one plain line",
    "me@example.org and you@example.org",
    "+49 30 1234567",
    "pay 4539148803436467",
    "the last line",
]


def prepared(folder: Path, choice: str, pieces: int = 1) -> tuple[dict, list[str]]:
    splits = {"valid": 0.0, "test": 0.0}
    corpus = corpus_of("text", {"format": "text", "document": "line"}, filters={"personal_data": choice}, splits=splits)
    source = make_source(folder / "source", {"a.txt": "\n".join(TEXTS) + "\n"})
    report = prepare("made", corpus, source, folder / "out")
    return report.metrics, [record["text"] for record in PreparedCorpus(folder / "out").records("train")]


def test_text_is_kept_as_it_is_by_default(tmp_path: Path) -> None:
    metrics, texts = prepared(tmp_path, "keep")
    assert texts == TEXTS
    assert "masked" not in metrics
    assert not any(name.startswith("personal") for name in metrics["removed"])


def test_masked_text_is_counted_by_kind(tmp_path: Path) -> None:
    metrics, texts = prepared(tmp_path, "mask")
    assert texts == ["one plain line", "<email> and <email>", "<phone>", "pay <card>", "the last line"]
    assert metrics["masked"] == {"email": 2, "card": 1, "phone": 1}
    assert metrics["used"] == 5


def test_dropped_records_are_counted_by_the_first_kind(tmp_path: Path) -> None:
    metrics, texts = prepared(tmp_path, "drop")
    assert texts == ["one plain line", "the last line"]
    assert {kind: metrics["removed"][f"personal_{kind}"] for kind in ("email", "card", "phone")} == {
        "email": 1,
        "card": 1,
        "phone": 1,
    }
    assert metrics["raw"] == metrics["used"] + sum(metrics["removed"].values())


def test_both_sides_of_a_pair_are_masked() -> None:
    from lexmill.corpora.preparing import filters
    from lexmill.corpora.preparing.record import Record

    record, counts = Record("x", None, "ask a@b.org", "frag a@b.org"), Counter[str]()
    filters.mask(record, counts)
    assert (record.sides, counts) == (("ask <email>", "frag <email>"), {"email": 2})
