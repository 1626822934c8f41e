"""Find the character encoding of files that are not UTF-8, to be said and written down; never taken in silence.

Cost: one read of each file.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

from lexmill.base.errors import UserError
from lexmill.corpora.preparing.text_files import open_bytes
from lexmill.corpora.preparing.transcoding import wide_encoding

_BLOCK = 1 << 20
_LINES, _LONGEST = 2000, 4096  # of a guess: the first lines with bytes that are not ASCII
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
        UserError: a file is neither UTF-8 nor anything that can be guessed; it cannot be read.
    """
    found = {}
    for name, path in located.items():
        with open_bytes(path) as stream:
            start = stream.read(_LONGEST)
        encoding = wide_encoding(start) or (None if is_in(path, "utf-8") else _guess(path, expected))
        if encoding is not None:
            found[name] = encoding, _example(path, encoding)
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
    data = b"".join(islice(_lines_beyond_ascii(path), _LINES))
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


def _lines_beyond_ascii(path: Path) -> Iterator[bytes]:
    with open_bytes(path) as stream:
        while line := stream.readline(_LONGEST):
            if not line.isascii():
                yield line


def _example(path: Path, encoding: str) -> str:
    """Return the words around the first character that is not ASCII."""
    with open_bytes(path) as stream:
        if encoding.startswith("utf"):
            text = stream.read(_LONGEST).decode(encoding, "ignore")
        else:
            text = next(_lines_beyond_ascii(path), b"").decode(encoding, "replace")
    at = next((i for i, character in enumerate(text) if ord(character) > 127), 0)
    return " ".join(text[max(0, at - 20) : at + 20].split())
