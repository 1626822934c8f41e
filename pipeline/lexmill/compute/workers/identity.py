"""Check that a worker elsewhere sees the same folder and has the same code and libraries.

The stage writes a random word into the scratch folder and sends it with every piece; a worker checks once. Compared is
what can change a result: our code for pieces, Python's Unicode tables, and the libraries that read, hash or tokenize.
"""

from __future__ import annotations

import os
import platform
import secrets
import socket
import sys
import unicodedata
from functools import cache
from importlib import metadata
from pathlib import Path

import lexmill
from lexmill.base.code import Code
from lexmill.base.errors import UserError
from lexmill.compute.workers.executor import Plain

WORK = (
    "lexmill.compute.workers.remote",
    "lexmill.corpora.preparing.pieces",
    "lexmill.corpora.preparing.spans",
    "lexmill.data.encoding_pieces",
)
"""The modules whose functions work on a piece, and the one that calls them by name."""

_LIBRARIES = ("datasketch", "numpy", "py3langid", "pyarrow", "tokenizers", "zstandard")
_WORD = ".workers"


def identity(folder: Path) -> Plain:
    """Return what every worker must match; write a word into the folder, by which they recognise it."""
    word = secrets.token_hex(16)
    (folder / _WORD).write_text(word, encoding="utf-8")
    return {"folder": str(folder.absolute()), "word": word, "code": code_fingerprint(), "versions": versions()}


def check(wanted: Plain) -> None:
    """Compare this process with `wanted`; raise `UserError` naming this machine and all differences."""
    key = (wanted["folder"], wanted["word"])
    if key in _fit:
        return
    here = f"the worker on {socket.gethostname()} (process {os.getpid()})"
    file = Path(wanted["folder"]) / _WORD
    try:
        seen = file.read_text(encoding="utf-8") == wanted["word"]
    except OSError:
        seen = False
    if not seen:
        raise UserError(
            f"{here} does not see {file.parent}; the project's folder must lie on storage that all machines share,"
            " at the same path"
        )
    mine, theirs = versions(), wanted["versions"].items()
    other = [f"{name} {mine[name]}, not {version}" for name, version in theirs if mine[name] != version]
    if code_fingerprint() != wanted["code"]:
        other.append(f"other code of lexmill (in {Path(lexmill.__file__).parent})")
    if other:
        raise UserError(
            f"{here} has {'; '.join(other)}; install the same version there, with the same lock file, and start"
            " the worker anew"
        )
    _fit.add(key)


_fit: set[tuple[str, str]] = set()


@cache
def code_fingerprint() -> str:
    """Return the digest of the code for pieces, without exemptions: both sides read what the other writes."""
    return Code().closure(*WORK, exempt=()).digest


def versions() -> dict[str, str]:
    """Return the versions of what can change a result."""
    found = {"python": ".".join(platform.python_version_tuple()[:2]), "unicode": unicodedata.unidata_version}
    for name in _LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "missing"
    return found | {"byte order": sys.byteorder}
