"""A text is cut between whole characters; Unicode's own rules (`regex`) say where those are."""

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from lexmill.base.cutting import beginning, cut, cut_middle, ending

CHARACTERS = {
    "a letter with marks": "e\u0301\u0323",
    "a family": "👨‍👩‍👧‍👦",
    "a heart of text and emoji": "❤️",
    "a skin tone": "👍🏽",
    "two flags": "🇨🇭🇯🇵",
    "the flag of Wales": "\U0001f3f4\U000e0067\U000e0062\U000e0077\U000e006c\U000e0073\U000e007f",
    "a keycap": "1️⃣",
    "Devanagari": "क्षि",
    "Tamil": "நி",
    "Thai": "กำ",
    "Hangul of jamo": "\u1112\u1161\u11ab",
    "Hangul with a final": "하\u11ab",
    "halfwidth katakana": "ｶﾞ",
    "a line end": "\r\n",
    "an accent alone after a line end": "\n\u0301",
    "Hebrew": "שָׁ",
    "Latin": "straße",
}


@pytest.mark.parametrize("text", CHARACTERS.values(), ids=CHARACTERS.keys())
def test_each_length_gives_the_whole_characters_that_fit(text: str) -> None:
    text = f"x{text}yz"
    characters = regex.findall(r"\X", text)
    for most in range(len(text) + 2):
        fitting = [count for count in range(len(characters) + 1) if len("".join(characters[:count])) <= most]
        assert beginning(text, most) == "".join(characters[: fitting[-1]])
        fitting = [count for count in range(len(characters) + 1) if len("".join(characters[count:])) <= most]
        assert ending(text, most) == "".join(characters[fitting[0] :])


@given(st.text(alphabet=st.sampled_from("".join(CHARACTERS.values())) | st.characters()), st.integers(0, 30))
def test_a_cut_keeps_to_its_length_and_to_the_text(text: str, most: int) -> None:
    first, last = beginning(text, most), ending(text, most)
    assert text.startswith(first)
    assert text.endswith(last)
    assert max(len(first), len(last)) <= most
    assert len(cut(text, 3 + most)) <= 3 + most
    assert len(cut_middle(text, 1 + most)) <= 1 + most


def test_the_mark_counts_and_a_text_that_fits_has_none() -> None:
    assert cut("logistic regression", 9, "…") == "logistic…"
    assert cut("logistic regression", 10, "…") == "logistic…"
    assert cut("short", 5) == "short"
    assert cut("👨‍👩‍👧‍👦 and more", 6) == "..."
    assert cut_middle("home_assistant_bpe", 11) == "home_…t_bpe"
    assert cut_middle("short", 5) == "short"
    assert cut_middle("e\u0301e\u0301e\u0301e\u0301e\u0301", 8) == "e\u0301e\u0301…e\u0301"
