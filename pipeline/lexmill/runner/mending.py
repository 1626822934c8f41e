"""What a killed dvc leaves half-written, put right before the next one reads it.

DVC writes two files in place: `.dvc/tmp/rwlock`, the paths that its processes hold, and `dvc.lock`, what was run.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml

from lexmill import storage

_ENTRY = re.compile(r"^  \S", re.MULTILINE)  # where a stage begins, as DVC indents it
_CONFLICT = re.compile(r"^(<<<<<<<|=======|>>>>>>>)", re.MULTILINE)


def mend_rwlock(folder: Path) -> None:
    """Remove the file of held paths in DVC's folder of temporary files when it is no JSON.

    It is looked at under DVC's own guard, so nobody is writing it just now.
    """
    from dvc.lock import make_lock

    held = folder / "rwlock"
    if _is_json(held):
        return
    with make_lock(str(folder / "rwlock.lock"), tmp_dir=str(folder)):
        if not _is_json(held):
            held.unlink(missing_ok=True)


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return True
    except ValueError:
        return False
    return True


def mend_lock_file(path: Path) -> bool:
    """Cut a half-written dvc.lock back to the stages that are whole in it; whether it was half-written.

    A stage that is lost so is restored from DVC's run cache by the next run. The caller holds DVC's lock, so nobody
    is writing the file just now. A file with the marks of a merge conflict is left for people.
    """
    try:
        # A cut may lie amid the bytes of a character.
        text = path.read_bytes().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return False
    if _CONFLICT.search(text) or (text.endswith("\n") and _is_lock(text)):
        return False
    entries = [found.start() for found in _ENTRY.finditer(text)]
    kept = text[: entries[-1]] if len(entries) > 1 else ""
    if not kept:
        path.unlink()
    elif _is_lock(kept):
        storage.write_text(path, kept)
    else:
        return False  # not what a kill leaves: DVC says what is wrong with it
    return True


def _is_lock(text: str) -> bool:
    from dvc.schema import COMPILED_LOCKFILE_SCHEMA
    from voluptuous import Invalid

    try:
        COMPILED_LOCKFILE_SCHEMA(yaml.load(text, Loader=_LOADER))
    except (yaml.YAMLError, Invalid):
        return False
    return True


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
