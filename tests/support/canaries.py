"""Secrets that a test plants, and a search that finds them however they were written down.

A canary is a word of letters and digits, so that quoting leaves it as it is: it is found plain, in URLs and in JSON.
Base64 (a Basic header) has three forms of it, by where it begins. Files are looked into: git objects and other zlib,
gzip, zstandard, xz, zip, to any depth; databases also by their values, since a long one lies on several pages.
"""

from __future__ import annotations

import base64
import gzip
import io
import lzma
import secrets
import sqlite3
import subprocess
import zipfile
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

import zstandard

_MOST = 1 << 28  # bytes of one unpacked file


def canary(place: str) -> str:
    """A secret that says where it was planted."""
    return f"Hush{place}{secrets.token_hex(6)}"


def forms(word: str) -> set[bytes]:
    """The bytes by which a canary shows: plain, reversed, in hex, and within a text in base64."""
    found = {word.encode(), word[::-1].encode(), word.encode().hex().encode()}
    for before in range(3):
        coded = base64.b64encode(b"x" * before + word.encode()).rstrip(b"=")
        found.add(coded[-(-before * 4 // 3) : -1])  # without the characters that neighbours share
    return found


def leaks(texts: Iterable[tuple[str, bytes]], canaries: Mapping[str, str]) -> set[str]:
    """Which canary is in which text: `netrc in mlflow.db`."""
    wanted = [(place, form) for place, word in canaries.items() for form in forms(word)]
    return {
        f"{place} in {name}"
        for name, data in texts
        for layer in _layers(data)
        for place, form in wanted
        if form in layer
    }


def texts_of(folder: Path, but: Collection[Path] = ()) -> Iterator[tuple[str, bytes]]:
    """Every file below a folder with its name, hidden ones too; the objects of git, and the values of databases."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        yield f"the name of {name}", name.encode()
        if path.is_symlink():
            yield f"the aim of {name}", str(path.readlink()).encode()
        elif path.is_file() and path not in but:
            data = path.read_bytes()
            yield name, data
            if data.startswith(b"SQLite format 3\0"):
                yield f"{name} (values)", _values(path)
        elif path.name == ".git" or (path / "objects").is_dir():
            command = ["git", f"--git-dir={path}", "cat-file", "--batch", "--batch-all-objects"]
            yield f"{name} (objects)", subprocess.run(command, check=True, capture_output=True).stdout


def _values(path: Path) -> bytes:
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
        database.text_factory = bytes
        tables = [name.decode() for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        rows = (row for table in tables for row in database.execute(f'SELECT * FROM "{table}"'))
        found = b"\n".join(value if isinstance(value, bytes) else str(value).encode() for row in rows for value in row)
    database.close()
    return found


def _layers(data: bytes) -> Iterator[bytes]:
    """The bytes, and what is packed in them."""
    yield data
    for inner in _unpacked(data):
        yield from _layers(inner)


def _unpacked(data: bytes) -> Iterator[bytes]:
    try:
        if data.startswith(b"\x1f\x8b"):
            yield gzip.decompress(data)
        elif data.startswith(b"\x28\xb5\x2f\xfd"):
            yield zstandard.ZstdDecompressor().decompress(data, max_output_size=_MOST)
        elif data.startswith(b"\xfd7zXZ\0"):
            yield lzma.decompress(data)
        elif data.startswith(b"PK\3\4"):
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                yield from (archive.read(name) for name in archive.namelist())
        elif data[:1] == b"\x78":
            yield zlib.decompress(data)
    except (OSError, EOFError, zlib.error, lzma.LZMAError, zstandard.ZstdError, zipfile.BadZipFile):
        return  # another file that begins like this; its plain bytes were searched
