"""The state that dvc.lock records, as one hash.

DVC writes the stages in the order in which they were done, so that equal states have files of unequal bytes. The hash
is taken of what the file says, keys sorted. Cost: it is parsed, some 10 ms for fifty stages.
"""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from lexmill.base import storage

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def digest(root: Path) -> str | None:
    """The sha256 of dvc.lock's canonical JSON; None where there is none, or what a kill left of it cannot be read."""
    try:
        text = (root / "dvc.lock").read_text(encoding="utf-8", errors="replace")
        found = yaml.load(text, Loader=_LOADER)
    except (FileNotFoundError, yaml.YAMLError):
        return None
    # A date among the params is no JSON, and a key may be a number.
    return storage.fingerprint(json.loads(json.dumps(found, default=str)))
