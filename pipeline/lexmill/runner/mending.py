"""Repair what a killed dvc leaves behind, before the next one reads it.

DVC writes two files in place: `.dvc/tmp/rwlock`, the paths that its processes hold, and `dvc.lock`. `code.json` follows
from the code, and DVC's caches of hashes from the files, so nobody has to repair them either.
"""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from lexmill.base import storage

if TYPE_CHECKING:
    from dvc.repo import Repo

_ENTRY = re.compile(r"^  \S", re.MULTILINE)  # where a stage begins, as DVC indents it
_CONFLICT = re.compile(r"^(<<<<<<<|=======|>>>>>>>)", re.MULTILINE)


def mend_rwlock(folder: Path) -> None:
    """Repair DVC's file of held paths in its folder of temporary files, if half-written or held by dead processes.

    DVC itself checks only whether the process id lives, which after a restart may be another program's. The file is
    changed under DVC's own lock.
    """
    from dvc.lock import make_lock

    held = folder / "rwlock"
    if not held.exists():
        return
    with make_lock(str(folder / "rwlock.lock"), tmp_dir=str(folder)):
        try:
            found = storage.read_json(held)
            write = {path: one for path, one in found.get("write", {}).items() if _holds(one)}
            read = {path: [one for one in all_ if _holds(one)] for path, all_ in found.get("read", {}).items()}
        except FileNotFoundError:
            return
        except (ValueError, AttributeError, TypeError, KeyError, OverflowError):
            held.unlink()
            return
        kept = {"write": write, "read": {path: all_ for path, all_ in read.items() if all_}}
        if kept != {"write": {}, "read": {}, **found}:
            storage.write_text(held, json.dumps(kept))


def stale_holders(folder: Path) -> list[str]:
    """Return the paths that `mend_rwlock` would free."""
    try:
        found = storage.read_json(folder / "rwlock")
        held = [(path, [one]) for path, one in found.get("write", {}).items()] + list(found.get("read", {}).items())
        return sorted({path for path, holders in held if not all(map(_holds, holders))})
    except FileNotFoundError:
        return []
    except (ValueError, AttributeError, TypeError, KeyError, OverflowError):
        return ["all, by a half-written file"]


def _holds(holder: dict[str, Any]) -> bool:
    """Return whether the dvc that wrote this entry still runs: the process lives, with the recorded command line."""
    import psutil

    try:
        words = psutil.Process(holder["pid"]).cmdline()
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
    return bool(words) and str(holder["cmd"]).endswith(words[-1])


def forget_collections(repo: Repo) -> None:
    """Forget the lists that DVC has made of what there is to push or fetch; it makes them anew.

    It saves a list in parts, and takes the parts that a stopped `dvc push` has left for the whole: the next push
    succeeds without the rest.
    """
    if (Path(repo.site_cache_dir) / "index" / "data" / "db.db").exists():
        repo.drop_data_index()


def mend_lock_file(path: Path) -> bool:
    """Cut a half-written dvc.lock back to its complete stages; return whether it was half-written.

    The next run restores a lost stage from DVC's run cache. The caller holds DVC's lock. A file with merge conflicts is
    left alone.
    """
    try:
        text = path.read_bytes().decode("utf-8", errors="replace")  # perhaps cut within a character
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
        return False  # not what a kill leaves: DVC reports what is wrong
    return True


def mend_code_file(path: Path) -> bool:
    """Remove code.json where it cannot be read, damaged or with merge conflicts; return whether.

    The stage `code` writes it anew.
    """
    try:
        whole = isinstance(json.loads(path.read_bytes()), dict)
    except FileNotFoundError:
        return False
    except (ValueError, RecursionError):
        whole = False
    if not whole:
        path.unlink()
    return not whole


def damaged_caches(root: Path) -> list[Path]:
    """Return DVC's SQLite caches of this machine that are damaged: hashes of files and links. It makes them anew."""
    from dvc.config import Config
    from dvc.dirs import site_cache_dir

    chosen = Config(dvc_dir=str(root / ".dvc"))["core"].get("site_cache_dir")
    found = sorted(Path(site_cache_dir(chosen)).glob("repo/*/**/cache.db"))
    return [path for path in found if not _is_whole(path)]


def _is_whole(path: Path) -> bool:
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
            return connection.execute("PRAGMA quick_check(1)").fetchall() == [("ok",)]
    except sqlite3.OperationalError:
        return True  # busy, or another user's
    except (sqlite3.DatabaseError, UnicodeDecodeError):  # SQLite quotes what it found
        return False


def _is_lock(text: str) -> bool:
    from dvc.schema import COMPILED_LOCKFILE_SCHEMA
    from voluptuous import Invalid

    try:
        COMPILED_LOCKFILE_SCHEMA(yaml.load(text, Loader=_LOADER))
    except (yaml.YAMLError, Invalid):
        return False
    return True


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
