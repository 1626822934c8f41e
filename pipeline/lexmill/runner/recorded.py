"""Read a stage's entry in dvc.lock: its inputs with digests, and a fingerprint of all that shapes its result.

Only the stage's own lines are read, since another dvc may be writing the rest in place. The layout is DVC's (a stage is
indented by two spaces).
"""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from lexmill.base import storage

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_BODY = r"^  (['\"]?){}\1:\n((?:    .*\n|\n)*)"
_NEXT = re.compile(r"  \S|\S")
_LOOKS, _PAUSE_SECONDS = 20, 0.05


@dataclass(frozen=True)
class Entry:
    """A stage in dvc.lock; empty where it is not there."""

    fingerprint: str = ""
    inputs: list[dict[str, Any]] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)


def read(root: Path, stage: str) -> Entry:
    """Return the entry of a stage (`train@gpt`, `sub/dvc.yaml:x`); wait up to a second while it is written."""
    file, _, name = stage.rpartition(":")
    lock = root / Path(file or "dvc.yaml").with_suffix(".lock")
    before: str | None = None
    for _ in range(_LOOKS):
        try:
            text = lock.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return Entry()
        body = re.search(_BODY.format(re.escape(name)), text, re.MULTILINE)
        # The last entry may be half-written; one followed by another is complete.
        if (body is not None and _NEXT.match(text, body.end())) or (text == before and text.endswith("\n")):
            return Entry() if body is None else _entry(body[2])
        before = text
        time.sleep(_PAUSE_SECONDS)
    return Entry()


def _entry(text: str) -> Entry:
    try:
        found = yaml.load(text, Loader=_LOADER)
        deps = [{key: one[key] for key in ("path", "md5", "size") if key in one} for one in found.get("deps", [])]
        outs = [str(one["path"]) for one in found.get("outs", [])]
        shaping = {"cmd": found["cmd"], "deps": deps, "params": found.get("params", {})}
    except (yaml.YAMLError, TypeError, KeyError, AttributeError):
        return Entry()  # not as DVC writes it
    # default=str for dates among the params.
    return Entry(storage.fingerprint(json.loads(json.dumps(shaping, default=str))), deps, outs)
