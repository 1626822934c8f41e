"""What a training's trajectory is a function of, beside its settings: code, inputs, seeds, library versions."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

_PACKAGE = Path(__file__).parent.parent


def code(kind: str, family: str) -> str:
    """Temporary."""
    return _code(
        "data", "training", "tokenizers", "models/common", "models/start.py", f"models/{family}", f"kinds/{kind}"
    )


def _code(*places: str) -> str:
    """A hash of the Python code of the package at these places: folders (whole) or files.

    It is made of what the files mean, not of their text: a comment, a docstring or another line break leaves it as it
    is, so that none of them throws a day of training away.

    Args:
        places: relative to the package, `training`, `models/gpt`, `stages/pretrain.py`.
    """
    digest = hashlib.sha256()
    for path in sorted(_files(places)):
        meaning = hashlib.sha256(_meaning(path.read_text(encoding="utf-8")).encode()).hexdigest()
        digest.update(f"{path.relative_to(_PACKAGE).as_posix()}\0{meaning}\n".encode())
    return digest.hexdigest()


def _meaning(text: str) -> str:
    """The syntax tree of a module, without its docstrings."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                del node.body[0]
    return ast.dump(tree)


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
