"""Digests of earlier code, by definition, to explain what changed: `models/lstm/model.py: LSTM.forward`.

    .lexmill/code/<hash of the digests>.json      {"files": {path: {part: digest}}, "closures": {digest: [path]}}

`code.json` and dvc.lock hold digests of whole closures. The parts are kept here whenever the graph is read or the stage
`code` runs, for the last `KEPT` states; without them only the explanation is missing. Cost: about 100 kB a state.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from lexmill.base import layout, storage
from lexmill.base.code import Closure
from lexmill.base.strict import flatten

FOLDER = Path(".lexmill", "code")
KEPT = 50
_SHOWN = 3

Parts = dict[str, dict[str, str]]


def remember(closures: dict[tuple[str, ...], Closure], root: Path = Path()) -> None:
    """Keep the parts of these closures and drop those of the oldest states."""
    by_digest = {closure.digest: list(closure.files) for closure in closures.values()}
    place = _place(by_digest.keys(), root)
    if place.is_file():
        place.touch()  # newest again
        return
    parts = {path: found for closure in closures.values() for path, found in closure.parts().items()}
    storage.write_text(place, json.dumps({"files": parts, "closures": by_digest}, separators=(",", ":")))
    for old in _newest_first(root)[KEPT:]:
        old.unlink(missing_ok=True)


def remembers(root: Path = Path()) -> bool:
    """Whether the parts behind code.json are kept."""
    try:
        return _place(set(flatten(storage.read_json(root / layout.CODE)).values()), root).is_file()
    except (OSError, ValueError):
        return False


def difference(digest: str, now: Closure, root: Path = Path()) -> str:
    """Say what differs between the closure of that earlier digest and `now`; empty where the digest is not known."""
    before = _recall(digest, root)
    if before is None:
        return ""
    after = now.parts()
    lines = [_of_file(path, before.get(path), after.get(path)) for path in sorted(before.keys() | after.keys())]
    found = [line for line in lines if line]
    return ", ".join(found[:_SHOWN]) + (f" and {len(found) - _SHOWN} more files" if len(found) > _SHOWN else "")


def _of_file(path: str, before: dict[str, str] | None, after: dict[str, str] | None) -> str:
    if before == after:
        return ""
    if before is None or after is None:
        return f"{path} {'is new' if before is None else 'is gone'}"
    names = [name for name in {**before, **after} if name and before.get(name) != after.get(name)]
    if not names:
        return path  # the same definitions in another order, or no Python
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{path}: {', '.join(names[:_SHOWN])}{more}"


def _place(digests: Collection[str], root: Path) -> Path:
    return root / FOLDER / f"{storage.fingerprint(sorted(digests))[:32]}.json"


def _recall(digest: str, root: Path) -> Parts | None:
    for place in _newest_first(root):
        try:
            state: dict[str, Any] = storage.read_json(place)
            return {path: state["files"][path] for path in state["closures"][digest]}
        except (OSError, ValueError, KeyError, TypeError):
            continue  # another state, or half of one
    return None


def _newest_first(root: Path) -> list[Path]:
    return sorted((root / FOLDER).glob("*.json"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
