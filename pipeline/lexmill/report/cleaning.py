"""Other people's text, made fit for a page."""

from __future__ import annotations

# Control characters but tab and newline.
_FORBIDDEN = {code: "\ufffd" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\t\n"}


def clean(words: str) -> str:
    """The text without what HTML forbids and UTF-8 cannot hold (control characters, halves of characters)."""
    return words.translate(_FORBIDDEN).encode("utf-8", "replace").decode("utf-8")
