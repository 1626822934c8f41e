"""Compare the user's own files with their fetched copies: DVC does not see files outside its workspace.

A corpus of kind `file` is fetched again when its files differ from the copy in artifacts/sources/, unless
`lexmill refresh` pinned it: then a difference is only reported. Cost: one read of the files of equal size.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from lexmill.base import layout, storage
from lexmill.base.errors import UserError
from lexmill.corpora.fetching import pins
from lexmill.params import Params
from lexmill.params.corpora import FileSource


def changed_files(params: Params, root: Path) -> dict[str, str]:
    """Return the fetch stages whose files changed since they were fetched, each with what changed.

    A source never fetched, or whose files are gone, is left to its stage.
    """
    entries, found = pins.read(root)["corpora"], {}
    for name, source in _own_files(params):
        if pins.pin_of(source, entries.get(name)) is None:
            reason = _difference(source, root, root / layout.source(name) / "manifest.json")
            if reason is not None:
                found[f"fetch@{name}"] = reason
    return found


def changed_since_pinned(params: Params, root: Path) -> list[str]:
    """Report changes of pinned files, a sentence per corpus."""
    entries, found = pins.read(root)["corpora"], []
    for name, source in _own_files(params):
        pin = pins.pin_of(source, entries.get(name))
        reason = pin and _difference(source, root, root / layout.source(name) / "manifest.json")
        if not reason:
            continue
        from lexmill.corpora.fetching.files import present_pin  # slow to import, seldom needed

        if present_pin(source, root) != pin:
            found.append(f"corpora.{name}: {reason} since it was pinned; `lexmill refresh {name}` takes it up")
    return found


def _own_files(params: Params) -> Iterator[tuple[str, FileSource]]:
    for name, corpus in params.corpora.items():
        if isinstance(corpus.source, FileSource):
            yield name, corpus.source


def _difference(source: FileSource, root: Path, manifest: Path) -> str | None:
    from lexmill.corpora.fetching.files import locate

    try:
        fetched = {entry["path"]: entry for entry in storage.read_json(manifest)["files"]}
        present = locate(source, root)
    except (OSError, ValueError, KeyError, TypeError, UserError):
        return None
    for name in sorted(fetched.keys() | present.keys()):
        if name not in present:
            return f"{name} is gone"
        if name not in fetched:
            return f"{present[name]} is new"
        path, entry = present[name], fetched[name]
        if path.stat().st_size != entry["bytes"] or storage.sha256_file(path) != entry["sha256"]:
            return f"{path} changed"
    return None
