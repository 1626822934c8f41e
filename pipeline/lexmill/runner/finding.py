"""One thing that is wrong, as a sentence, with what to do; and what puts it right where a machine may."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


def counted(number: int, what: str) -> str:
    """`1 checkpoint`, `2 checkpoints`."""
    return f"{number} {what}{'' if number == 1 else 's'}"


@dataclass(frozen=True)
class Finding:
    """A fault of the workspace.

    Attributes:
        what: the sentence that says it.
        todo: what a person does about it.
        fix: puts it right; None: only a person can. Raises a `LexmillError` where it could not.
    """

    what: str
    todo: str
    fix: Callable[[], None] | None = None

    def __str__(self) -> str:
        return f"{self.what}; {self.todo}"
