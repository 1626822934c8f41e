"""Names of character encodings."""

from __future__ import annotations

import codecs

from lexmill.base.shown import value_text

WIDE = ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be")
"""Codecs with two or four bytes a character."""


def codec_name(name: str) -> str:
    """Return the name of an encoding's codec, one for all spellings (`latin-1`, `ISO-8859-1`).

    Raises:
        ValueError: there is no such encoding, or its lines do not end at the byte of a newline (EBCDIC).
    """
    try:
        codec = codecs.lookup(name).name
        newline = "\n".encode(name)  # no codec of bytes, as hex
    except (LookupError, ValueError):
        raise ValueError(f"{value_text(name)} is unknown; for instance utf-8, latin-1, cp1252, utf-16") from None
    if codec == "utf-8-sig":
        return "utf-8"
    if newline != b"\n" and codec not in WIDE:
        raise ValueError(f"{value_text(name)} cannot be read line by line; save the files as UTF-8")
    return codec
