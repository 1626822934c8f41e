"""What a training's trajectory is a function of, beside its settings: code, inputs, seeds, library versions."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

from lexmill.storage import sha256_file

_PACKAGE = Path(__file__).parent.parent


def code(*places: str) -> str:
    """A hash of the Python files of the package at these places: folders (whole) or files.

    Args:
        places: relative to the package, `training`, `models/gpt`, `stages/pretrain.py`.
    """
    digest = hashlib.sha256()
    for path in sorted(_files(places)):
        digest.update(f"{path.relative_to(_PACKAGE).as_posix()}\0{sha256_file(path)}\n".encode())
    return digest.hexdigest()


def _files(places: Iterable[str]) -> set[Path]:
    found: set[Path] = set()
    for place in places:
        path = _PACKAGE / place
        files = {path} if path.is_file() else set(path.rglob("*.py"))
        if not files:
            raise ValueError(f"no code at {place}")
        found |= files
    return found


def libraries() -> dict[str, str]:
    """The versions of the libraries whose arithmetic or random numbers the weights are a function of."""
    return {name: version(name) for name in ("torch", "lightning", "numpy")}
