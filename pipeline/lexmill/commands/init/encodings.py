"""Find the character encoding of files that are not UTF-8, to be said and written down; never taken in silence.

Cost: one read of each file.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

from lexmill.base.errors import UserError, UserErrors
from lexmill.corpora.preparing.text_files import open_bytes
from lexmill.corpora.preparing.transcoding import wide_encoding

_BLOCK = 1 << 20
_LINES, _LONGEST = 2000, 4096  # of a guess: the first lines with bytes that are not ASCII
_BY_CHANCE = 0.05  # the share of lines in another encoding that can be UTF-8 too
_INSIDE = bytes(range(0x80, 0xC0))  # what continues a character of UTF-8
_WESTERN = "cp1252"
_GUESSES = [
    _WESTERN,
    "cp1250",
    "cp1251",
    "koi8_r",
    "cp1253",
    "cp1254",
    "shift_jis",
    "euc_jp",
    "gb18030",
    "big5",
    "euc_kr",
]


def encodings(located: Mapping[str, Path], expected: str = "utf-8") -> dict[str, tuple[str, str]]:
    """Return the encoding of each file that is not UTF-8, with some text read by it that shows a difference.

    Args:
        located: the files by name.
        expected: the encoding to prefer where a file is not UTF-8.

    Raises:
        UserErrors: all files that cannot be read, mix UTF-8 with another encoding, or are in none that can be guessed.
    """
    found, errors = {}, list[str | UserError]()
    for name, path in located.items():
        try:
            with open_bytes(path) as stream:
                start = stream.read(_LONGEST)
            encoding = wide_encoding(start) or (None if is_in(path, "utf-8") else _guess(path, expected))
            if encoding is not None:
                found[name] = encoding, _example(path, encoding)
        except UserError as error:
            errors.append(error)
    if errors:
        raise UserErrors(errors)
    return found


def is_in(path: Path, encoding: str) -> bool:
    """Return whether all of a file can be decoded."""
    decoder = codecs.getincrementaldecoder(encoding)()
    with open_bytes(path) as stream:
        try:
            while block := stream.read(_BLOCK):
                decoder.decode(block)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return False
    return True


def _guess(path: Path, expected: str) -> str:
    from charset_normalizer import from_bytes

    if expected != "utf-8" and is_in(path, expected):
        return expected
    lines = list(islice(_lines_beyond_ascii(path), _LINES))
    utf8 = [number for number, line in lines if _is_utf8(line)]
    if len(utf8) > _BY_CHANCE * len(lines):
        mixed = f"not UTF-8, as line {utf8[0]} is: the file mixes encodings; write all of it in one"
        raise UserError(mixed, path, next((number for number, line in lines if not _is_utf8(line)), None))
    data = b"".join(line for _, line in lines)
    best = from_bytes(data, cp_isolation=_GUESSES).best()
    if best is None:
        raise UserError("neither UTF-8 nor an encoding that can be recognised; say which with --encoding", path)
    # Western text reads alike in several encodings; the most common of these is the best name for it.
    return _WESTERN if _decoded(data, _WESTERN) == str(best) else best.encoding


def _decoded(data: bytes, encoding: str) -> str | None:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        return None


def _is_utf8(line: bytes) -> bool:
    """Return whether a line, perhaps cut in a character, is UTF-8."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(line)
    except UnicodeDecodeError:
        return False
    return True


def _lines_beyond_ascii(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines with bytes that are not ASCII, each with its number; a long line comes in parts."""
    with open_bytes(path) as stream:
        number, begins = 0, True
        while line := stream.readline(_LONGEST):
            number += begins
            if not line.isascii():
                yield number, line if begins else line.lstrip(_INSIDE)
            begins = line.endswith(b"\n")


def _example(path: Path, encoding: str) -> str:
    """Return the words around the first character that is not ASCII."""
    with open_bytes(path) as stream:
        if encoding.startswith("utf"):
            text = stream.read(_LONGEST).decode(encoding, "ignore")
        else:
            text = next((line for _, line in _lines_beyond_ascii(path)), b"").decode(encoding, "replace")
    at = next((i for i, character in enumerate(text) if ord(character) > 127), 0)
    return " ".join(text[max(0, at - 20) : at + 20].split())
