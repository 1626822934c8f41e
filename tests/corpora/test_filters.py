"""What each filter removes, at its bounds."""

import re
import sys
import unicodedata

import pytest

from lexmill.corpora.preparing import filters
from lexmill.corpora.preparing.record import Record, normalize_record
from tests.corpora.made_sources import corpus_of

TEXT = {"format": "text"}
PAIRS = {"format": "jsonl", "source": "s", "target": "t"}


def removed_by(record, kind="text", reader=TEXT, **choices):
    """The first filter that hits, as prepare asks them."""
    corpus = corpus_of(kind, reader, filters=choices)
    return next((name for name, hits in filters.active(corpus).items() if hits(record)), None)


def pair(source, target):
    return Record("x", None, source, target)


@pytest.mark.parametrize(
    ("choice", "text", "hit"),
    [
        ({"min_characters": 3}, " ab ", True),
        ({"min_characters": 3}, "abc", False),
        ({}, " \n", True),
        ({"min_characters": 0}, "", False),
        ({"max_characters": 3}, "abcd", True),
        ({"max_characters": 3}, " abc\n", False),
        ({"min_words": 2}, "one", True),
        ({"min_words": 2}, "one\u2003two", False),
        ({"max_words": 2}, "a b c", True),
        ({"max_words": 2}, "a b", False),
        ({"drop_urls": True}, "see HTTPS://example.org", True),
        ({"drop_urls": True}, "in the form `http(s)://host`", True),
        ({"drop_urls": True}, "http is a protocol, socket://x is none", False),
        ({"drop_newlines": True}, "a\nb", True),
        ({"drop_newlines": True}, "a\u2028b", False),
    ],
)
def test_text_filters(choice, text, hit):
    name = next(iter(choice), "min_characters")
    assert removed_by(Record("x", None, text), **choice) == (name if hit else None)


@pytest.mark.parametrize(
    ("choice", "source", "target", "hit"),
    [
        ({"min_words": 3}, "one two three", "einszweidrei", False),
        ({"min_words": 3}, "one two", "eins zwei drei", True),
        ({"max_words": 2}, "a", "a b c", True),
        ({"min_characters": 1}, "a", " ", True),
        ({"max_characters": 1}, "a", "bb", True),
        ({"min_length_ratio": 0.5}, "abcd", "a", True),
        ({"min_length_ratio": 0.5}, "abcd", "ab", False),
        ({"max_length_ratio": 2.0}, "ab", "abcde", True),
        ({"max_length_ratio": 2.0}, "ab", "abcd", False),
        ({"min_length_ratio": 0.5}, "Turn the light off", "关灯", True),
        ({"min_length_ratio": 0.25}, "Turn the light off", "关灯", False),  # 2 of 18 characters, as 5 letters
        ({"max_length_ratio": 4.0}, "关灯", "Turn the light off", False),
        ({"max_length_ratio": 2.0}, "电灯", "전등", False),
        ({"same_placeholders": True}, "{a} {a} {b}", "{b} {a} {a}", False),
        ({"same_placeholders": True}, "{a} {a}", "{a}", True),
        ({"same_placeholders": True}, "{a", "a}", False),
        ({"drop_urls": True}, "a", "http://b", True),
    ],
)
def test_pair_filters(choice, source, target, hit):
    wanted = next(iter(choice)) if hit else None
    assert removed_by(pair(source, target), "parallel", PAIRS, **choice) == wanted


def test_lengths_in_letters():
    """A whole number where there is no wide character, so that other pairs keep their ratios to the bit."""
    texts = {"": 0, "für € 😀 über": 12, "灯": 2.5, "「テレビ」": 12.5, "ｗ": 2.5, "불을 켜": 8.5, "𠀀": 2.5}
    assert {text: filters._letters(text) for text in texts} == texts


def test_wide_letters_are_those_of_unicode():
    """But the parts of decomposed Hangul, of which two or three make a syllable."""
    jamo = re.compile("[\u1100-\u115f\ua960-\ua97c]")
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        written = unicodedata.category(character).startswith("L")
        wide = unicodedata.east_asian_width(character) in "WF"
        if written and wide and not jamo.match(character):
            assert filters._WIDE.match(character), hex(code)
        if written and filters._WIDE.match(character):
            assert wide, hex(code)


def test_ratings_between_the_thresholds_are_left_out_first():
    reader = {"format": "csv", "text": "t", "label": "l", "positive_from": 1, "negative_to": 0}
    assert removed_by(Record("x", None, "", None, None), "labelled", reader) == "neutral_rating"
    assert removed_by(Record("x", None, "a", None, "positive"), "labelled", reader) is None


def test_only_what_can_remove_something_is_listed():
    corpus = corpus_of("text", TEXT, filters={"min_length_ratio": 0.3, "same_placeholders": True})
    assert list(filters.active(corpus)) == ["min_characters"]


def test_normal_forms_and_white_space():
    text = Record("x", "e\u0301", " e\u0301ﬁ\n")
    normalize_record(text, "text", "NFC")
    assert (text.text, text.group) == (" éﬁ\n", "é")
    normalize_record(text, "text", "NFKC")
    assert text.text == " éfi\n"
    sides = Record("x", None, " e\u0301 ", "\u2028b\n", None)
    normalize_record(sides, "parallel", "none")
    assert (sides.text, sides.target) == ("e\u0301", "b")
