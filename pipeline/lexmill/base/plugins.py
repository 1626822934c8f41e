"""Plugins found by the name of their folder: kinds of models and families of networks."""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path
from types import ModuleType

_PACKAGE = Path(__file__).parent.parent


@cache
def names(room: str) -> tuple[str, ...]:
    """Return the packages in the folder `room`, sorted, without `common`, which they share."""
    found = sorted(path.parent.name for path in (_PACKAGE / room).glob("*/__init__.py"))
    return tuple(name for name in found if name != "common")


def load(room: str, name: str, module: str = "") -> ModuleType:
    """Import `lexmill.<room>.<name>`, or one of its modules."""
    return importlib.import_module(".".join(["lexmill", room, name, *([module] if module else [])]))


def has(room: str, name: str, module: str) -> bool:
    """Return whether `lexmill.<room>.<name>` has a module of that name; imports nothing."""
    return (_PACKAGE / room / name / f"{module}.py").is_file()
