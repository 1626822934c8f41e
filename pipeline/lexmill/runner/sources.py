"""The user's own files beside what was fetched of them: DVC sees params, not files outside its workspace.

A corpus of kind `file` is fetched again when its files differ from the copy in artifacts/sources/. Cost: one reading of
those files; a file whose size differs is not read.
"""

from __future__ import annotations

from pathlib import Path

from lexmill import layout, storage
from lexmill.errors import UserError
from lexmill.params import FileSource, Params


def changed_files(params: Params, root: Path) -> dict[str, str]:
    """The fetch stages whose files changed since they were fetched, each with what changed.

    A source that was never fetched, or whose files cannot be found now, is left to its stage.
    """
    found: dict[str, str] = {}
    for name, corpus in params.corpora.items():
        if isinstance(corpus.source, FileSource):
            reason = _difference(corpus.source, root, root / layout.source(name) / "manifest.json")
            if reason is not None:
                found[f"fetch@{name}"] = reason
    return found


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
