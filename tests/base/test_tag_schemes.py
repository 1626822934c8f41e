"""Schemes of tags: valid sequences, entities as conlleval counts them beside a slow twin, conversions and back."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lexmill.base.tag_schemes import BadTags, Entity, Scheme, allowed, check, entities, to_iob2, written

EVERY = ["O", *(f"{prefix}-{kind}" for prefix in "BIES" for kind in ("per", "loc"))]


def twin(tags: list[str]) -> list[Entity]:
    """The entities by the rules of conlleval's startOfChunk and endOfChunk, one after the other."""

    def ends(prefix: str, kind: str, after: str, then: str) -> bool:
        if prefix in ("E", "S"):
            return True
        if prefix in ("B", "I") and after in ("B", "S", "O"):
            return True
        return prefix != "O" and kind != then

    def starts(prefix: str, kind: str, after: str, then: str) -> bool:
        if after in ("B", "S"):
            return True
        if prefix in ("E", "S", "O") and after in ("E", "I"):
            return True
        return after != "O" and kind != then

    found, begin = [], 0
    prefix, kind = "O", ""
    for place, tag in enumerate([*tags, "O"]):
        after, then = tag[0], tag[2:]
        if ends(prefix, kind, after, then):
            found.append((kind, begin, place))
        if starts(prefix, kind, after, then):
            begin = place
        prefix, kind = after, then
    return found


@given(st.lists(st.sampled_from(EVERY), max_size=12))
def test_entities_are_those_of_conlleval(tags: list[str]) -> None:
    assert entities(tags) == twin(tags)


@pytest.mark.parametrize(
    ("tags", "found"),
    [
        ("O B-per I-per O", [("per", 1, 3)]),
        ("B-per B-per I-per", [("per", 0, 1), ("per", 1, 3)]),
        ("O I-per I-loc", [("per", 1, 2), ("loc", 2, 3)]),
        ("S-per E-per B-loc", [("per", 0, 1), ("per", 1, 2), ("loc", 2, 3)]),
        ("B-per I-loc E-loc I-loc", [("per", 0, 1), ("loc", 1, 3), ("loc", 3, 4)]),
        ("B-creative-work I-creative-work", [("creative-work", 0, 2)]),
        ("", []),
    ],
)
def test_entities_of_valid_and_invalid_sequences(tags: str, found: list[Entity]) -> None:
    assert entities(tags.split()) == found


@given(st.lists(st.tuples(st.sampled_from(["per", "loc"]), st.integers(0, 2), st.integers(1, 3)), max_size=4))
def test_each_scheme_keeps_the_entities(parts: list[tuple[str, int, int]]) -> None:
    spans, at = [], 0
    for kind, gap, length in parts:
        spans.append((kind, at + gap, at + gap + length))
        at += gap + length
    one: Scheme
    for one in ("iob2", "bioes"):
        tags = written(spans, at + 1, one)
        check(tags, one)
        assert entities(tags) == spans
        assert to_iob2(tags, one) == written(spans, at + 1, "iob2")
    # In iob1 only an entity that touches one of its type begins with B.
    touching = {(b[1]) for a, b in pairwise(spans) if a[0] == b[0] and a[2] == b[1]}
    iob1 = [
        tag if place in touching or tag == "O" else f"I-{tag[2:]}"
        for place, tag in enumerate(written(spans, at + 1, "iob2"))
    ]
    check(iob1, "iob1")
    assert to_iob2(iob1, "iob1") == written(spans, at + 1, "iob2")


def test_what_is_allowed_is_what_can_be_written() -> None:
    """All sequences of three words: those without an error are those that some entities have."""
    kinds = ["per", "loc"]
    schemes: tuple[tuple[Scheme, str], ...] = (("iob2", "BI"), ("bioes", "BIES"))
    for scheme, prefixes in schemes:
        tags = ["O", *(f"{prefix}-{kind}" for prefix in prefixes for kind in kinds)]
        valid = {path for path in product(tags, repeat=3) if list(path) == written(entities(path), 3, scheme)}
        for path in product(tags, repeat=3):
            bounds = [None, *path, None]
            fine = all(allowed(a, b, scheme) for a, b in pairwise(bounds))
            assert fine == (path in valid), path


@pytest.mark.parametrize(
    ("scheme", "tags", "word", "message"),
    [
        ("iob2", "O I-per", 1, "'I-per' cannot follow 'O' in the scheme iob2"),
        ("iob2", "I-per", 0, "'I-per' cannot begin a sentence in the scheme iob2"),
        ("iob2", "B-per I-loc", 1, "'I-loc' cannot follow 'B-per'"),
        ("iob1", "I-per O B-per", 2, "'B-per' cannot follow 'O' in the scheme iob1"),
        ("bioes", "O B-per", 1, "'B-per' cannot end a sentence in the scheme bioes"),
        ("bioes", "B-per O", 1, "'O' cannot follow 'B-per'"),
        ("iob2", "B-per S-per", 1, "'S-per' is no tag of the scheme iob2: B-type, I-type or O"),
        ("bioes", "X", 0, "'X' is no tag of the scheme bioes"),
        ("iob2", "B-", 0, "'B-' is no tag"),
    ],
)
def test_the_first_wrong_tag_is_named(scheme: Scheme, tags: str, word: int, message: str) -> None:
    with pytest.raises(BadTags) as raised:
        check(tags.split(), scheme)
    assert raised.value.word == word
    assert str(raised.value).startswith(message)


def test_tags_of_no_scheme_are_left_alone() -> None:
    tags = ["NOUN", "I-x", "O"]
    check(tags, "none")
    assert to_iob2(tags, "none") == tags
