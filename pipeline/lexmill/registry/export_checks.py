"""What exports for other programs check alike: the target, the packages, texts of several lengths to be answered."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lexmill.base.errors import UserError

TOLERANCE = 1e-4  # between what lexmill and the other program give
_WORDS = ["Über", "東京:", "the", "old", "mill", "turns,", "</s>", "[SEP]", "and", "its", "wheel", "is", "", "wet."]
TEXTS = tuple(" ".join((_WORDS * count)[:count]) for count in (1, 3, 12, 2000))


def new_or_empty(target: Path) -> None:
    """Raise `UserError` for what exists and is not an empty folder."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UserError("this exists and is not empty; name a new folder", target)


def refuse_tags(config: Mapping[str, Any], what: str) -> None:
    """Raise `UserError` for a model that is asked for a language by a tag; `what` begins the sentence."""
    if config.get("target_languages"):
        raise UserError(f"{what} of several languages, asked for by a tag, which other programs would leave out")


def check_packages(program: str, extra: str, *packages: str) -> None:
    """Raise `UserError` where packages of an extra are missing."""
    if missing := [name for name in packages if find_spec(name) is None]:
        raise UserError(f"{program} needs {', '.join(missing)}: pip install 'lexmill[{extra}]'")
