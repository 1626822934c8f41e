"""Cut a text to a length between characters as readers see them.

What readers see as one character may be several code points: a letter with its marks, a flag, a family of emoji, a
syllable. The rules are those of Unicode's text segmentation (UAX #29) with general categories in place of its own
tables, which Python lacks; where they differ, they keep more together. Lengths are code points.
Cost: that of a slice.
"""

from __future__ import annotations

import unicodedata

_ZWJ = "\u200d"
_VIRAMA = 9  # canonical combining class: the consonant after it belongs to the same syllable
# That continue a character though they are no marks: ZWNJ, the vowel signs Thai and Lao AM, halfwidth katakana's sound
# marks, emoji's skin tones, tags (the flag of Wales).
_CONTINUING = (
    *((0x200C, 0x200D), (0x0E33, 0x0E33), (0x0EB3, 0x0EB3), (0xFF9E, 0xFF9F)),
    *((0x1F3FB, 0x1F3FF), (0xE0020, 0xE007F)),
)
_LEADING_JAMO = ((0x1100, 0x115F), (0xA960, 0xA97C))
_LATER_JAMO = ((0x1160, 0x11FF), (0xD7B0, 0xD7FB))
_HANGUL = (*_LEADING_JAMO, *_LATER_JAMO, (0xAC00, 0xD7A3))
_REGIONAL = ((0x1F1E6, 0x1F1FF),)


def cut(text: str, most: int, mark: str = "...") -> str:
    """Return the text, or where it is longer its beginning and the mark, together at most `most` long."""
    return text if len(text) <= most else beginning(text, most - len(mark)).rstrip() + mark


def cut_middle(text: str, most: int, mark: str = "…") -> str:
    """Return the text, or where it is longer its beginning, the mark and its end, together at most `most` long."""
    if len(text) <= most:
        return text
    tail = (most - len(mark)) // 2
    return f"{beginning(text, most - len(mark) - tail)}{mark}{ending(text, tail)}"


def beginning(text: str, most: int) -> str:
    """Return the longest beginning of whole characters that is at most `most` long."""
    if len(text) <= most:
        return text
    end = max(0, most)
    while end > 0 and _is_inside(text, end):
        end -= 1
    return text[:end]


def ending(text: str, most: int) -> str:
    """Return the longest end of whole characters that is at most `most` long."""
    start = len(text) - max(0, most)
    while 0 < start < len(text) and _is_inside(text, start):
        start += 1
    return text[max(0, start) :]


def _is_inside(text: str, place: int) -> bool:
    """Return whether the place lies within a character."""
    before, after = text[place - 1], text[place]
    if before == "\r" and after == "\n":
        return True
    if before in "\r\n":
        return False
    if after.isascii():
        return False
    if unicodedata.category(after).startswith("M") or _within(after, _CONTINUING) or before == _ZWJ:
        return True
    if unicodedata.combining(before) == _VIRAMA:
        return unicodedata.category(after) == "Lo"
    if _within(after, _LATER_JAMO):
        return _within(before, _HANGUL)
    if _within(after, _LEADING_JAMO):
        return _within(before, _LEADING_JAMO)
    if _within(after, _REGIONAL):
        return _regional_before(text, place) % 2 == 1
    return False


def _within(character: str, ranges: tuple[tuple[int, int], ...]) -> bool:
    return any(first <= ord(character) <= last for first, last in ranges)


def _regional_before(text: str, place: int) -> int:
    start = place
    while start > 0 and _within(text[start - 1], _REGIONAL):
        start -= 1
    return place - start
