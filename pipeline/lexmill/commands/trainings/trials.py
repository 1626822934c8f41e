"""Ended trials on disk: `trials/0007.json` says what became of one, `trials/0007.jsonl` are its training's points."""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from lexmill.base import storage

TRIALS = "trials"


@dataclass(frozen=True, kw_only=True)
class Ended:
    """What is known of any ended trial.

    Attributes:
        number: from 1.
        valid_loss: nats a token; None if it failed.
        message: why it failed.
        started, seconds: milliseconds since 1970, and its run time since then.
    """

    number: int
    valid_loss: float | None
    message: str
    started: int
    seconds: float


Some = TypeVar("Some", bound=Ended)


def write(folder: Path, ended: Ended, points: Path | None = None) -> None:
    """Store a trial, anew where it is known, and its points, if there are any."""
    path = folder / TRIALS / f"{ended.number:04d}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    if points is not None and points.is_file():
        shutil.copyfile(points, path.with_suffix(".jsonl"))
    storage.write_json(path, asdict(ended))


def read(folder: Path, made: type[Some]) -> list[Some]:
    """Return the ended trials, by number."""
    return [made(**storage.read_json(path)) for path in sorted((folder / TRIALS).glob("[0-9]*.json"))]
