"""sources.lock.yaml: the version at which each moving source of params.yaml is pinned.

    corpora:
      plays: {pin: fixed}                   # params.yaml pins it itself: an exact version with its sha256, a commit ...
      notes: {pin: none}                    # it moves and was never pinned
      news:
        pin: {version: 1.4.0, sha256: ...}  # what fetch brings; tracked by DVC, so a new pin changes `news` alone
        of: pypi sdist news latest          # the source that was pinned; the pin is void for any other
    checkpoints: ...

`lexmill refresh` moves the pins, fetch reads them: without a refresh, every run fetches the same bytes. DVC has no
optional params, so every corpus and checkpoint has an entry; `complete` adds the missing ones.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lexmill.base.errors import UserError
from lexmill.base.storage import fingerprint, write_text
from lexmill.params import FileSource, HubSource, PackageSource, Params, RegisteredSource, Source, UrlSource, read_yaml

FILE = "sources.lock.yaml"
GROUPS = ("corpora", "checkpoints")
FIXED, NONE = "fixed", "none"
_HEAD = """\
# What the sources that move (a newest version, a branch, an address without a hash) were last found to be.
# `lexmill refresh` writes this file, `lexmill compose` completes it; fetch and DVC read it. docs/nightly.md
"""
_COMMIT = re.compile(r"[0-9a-f]{40}")
Entry = dict[str, Any]


@dataclass(frozen=True)
class Pinned:
    """A source as fetch brings it.

    Attributes:
        source: with the values of its pin.
        files: the pin that the names and bytes of the user's own files must match; None: not pinned.
    """

    source: Source
    files: Mapping[str, Any] | None = None


def moves(source: Source | RegisteredSource) -> bool:
    """Whether the same params may give other bytes tomorrow."""
    match source:
        case PackageSource():
            return source.sha256 is None
        case HubSource():
            return not is_local(source) and not _COMMIT.fullmatch(source.revision or "")
        case UrlSource() | FileSource():
            return not source.sha256
    return False


def needs_pin(source: Source | RegisteredSource) -> bool:
    """Whether fetch needs a pin. The user's own files need none: `lexmill run` checks them each time."""
    return moves(source) and not isinstance(source, FileSource)


def is_local(source: HubSource) -> bool:
    """Whether a data set's name is the path of a local folder."""
    return source.dataset.startswith((".", "/"))


def identity(source: Source | RegisteredSource) -> Any:
    """What a pin belongs to: package, branch or addresses."""
    match source:
        case PackageSource():
            return f"{source.registry} {source.archive} {source.name} {source.version}"
        case HubSource():
            return f"{source.dataset} {source.revision or 'main branch'}"
        case UrlSource():
            return list(source.urls)
        case FileSource():
            return list(source.paths)
    return ""


def sources(params: Params) -> dict[str, dict[str, Source | RegisteredSource]]:
    """The sources of params.yaml by group and name."""
    return {
        "corpora": {name: corpus.source for name, corpus in params.corpora.items()},
        "checkpoints": {name: checkpoint.source for name, checkpoint in params.checkpoints.items()},
    }


# ---------------------------------------------------------------- the file


def read(root: str | Path = ".") -> dict[str, dict[str, Entry]]:
    """Return the entries by group and name, none without a file; raise `UserError` for a damaged file (a bad merge)."""
    path = Path(root) / FILE
    if not path.is_file():
        return {group: {} for group in GROUPS}
    data = read_yaml(path)
    if not isinstance(data, dict) or not all(
        isinstance(data.get(group), dict | None)
        and all(isinstance(entry, dict) and "pin" in entry for entry in (data.get(group) or {}).values())
        for group in GROUPS
    ):
        raise UserError("not what `lexmill refresh` writes; put it back (`git checkout`) or remove and renew it", path)
    return {group: dict(data.get(group) or {}) for group in GROUPS}


def write(entries: Mapping[str, Mapping[str, Entry]], root: str | Path = ".") -> bool:
    """Write the entries; return whether the file changed."""
    path = Path(root) / FILE
    plain = {group: dict(entries[group]) for group in GROUPS}
    text = _HEAD + yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=1000)
    if path.is_file() and path.read_bytes() == text.encode():
        return False
    write_text(path, text)
    return True


def completed(params: Params, entries: Mapping[str, Mapping[str, Entry]]) -> dict[str, dict[str, Entry]]:
    """Return one entry for each source of params.yaml; pins of sources that have changed since are dropped."""
    return {
        group: {name: _entry(source, entries[group].get(name)) for name, source in named.items()}
        for group, named in sources(params).items()
    }


def complete(params: Params, root: str | Path = ".") -> bool:
    """Make the file agree with params.yaml, offline; return whether it changed."""
    if not any(sources(params).values()) and not (Path(root) / FILE).exists():
        return False
    return write(completed(params, read(root)), root)


def _entry(source: Source | RegisteredSource, entry: Entry | None) -> Entry:
    if not moves(source):
        return {"pin": NONE if isinstance(source, HubSource) and is_local(source) else FIXED}
    pin = pin_of(source, entry)
    return {"pin": NONE} if pin is None or entry is None else entry


def pin_of(source: Source | RegisteredSource, entry: Entry | None) -> dict[str, Any] | None:
    """The pin of a moving source; None where it has none, or only one of another source."""
    if entry is None or not isinstance(entry["pin"], dict) or entry.get("of") != identity(source):
        return None
    return dict(entry["pin"])


# ---------------------------------------------------------------- use in fetch


def pinned(source: Source, group: str, name: str, root: str | Path = ".") -> Pinned:
    """Return the source with the values of its pin; raise `UserError` if it moves and has none."""
    if not moves(source):
        return Pinned(source)
    pin = pin_of(source, read(root)[group].get(name))
    if pin is None:
        if needs_pin(source):
            raise UserError(f"{why(source)}, and {FILE} has no pin for it; pin it with `lexmill refresh {name}`")
        return Pinned(source)
    try:
        match source:
            case PackageSource():
                return Pinned(dataclasses.replace(source, version=str(pin["version"]), sha256=str(pin["sha256"])))
            case HubSource():
                return Pinned(dataclasses.replace(source, revision=str(pin["revision"])))
            case UrlSource() if len(pin["sha256"]) == len(source.urls):
                return Pinned(dataclasses.replace(source, sha256=tuple(map(str, pin["sha256"]))))
            case FileSource():
                return Pinned(source, {key: pin[key] for key in ("files", "bytes", "sha256")})
    except (KeyError, TypeError):
        pass  # reported below
    raise UserError(f"its pin cannot be read; `lexmill refresh {name}` renews it", Path(root) / FILE)


def why(source: Source | RegisteredSource) -> str:
    """Why a source moves, as the beginning of a sentence."""
    match source:
        case PackageSource():
            return "it is the newest version" if source.version == "latest" else "its params give no sha256"
        case HubSource():
            return f"revision '{source.revision}' may move" if source.revision else "its params give no revision"
    return "its params give no sha256"


def files_pin(files: list[dict[str, Any]]) -> dict[str, Any]:
    """The pin of files from their manifest entries (`path`, `bytes`, `sha256`): number, total size and one hash."""
    named = {entry["path"]: entry["sha256"] for entry in files}
    return {"files": len(files), "bytes": sum(entry["bytes"] for entry in files), "sha256": fingerprint(named)}


def files_text(pin: Mapping[str, Any]) -> str:
    """`3 files, 1,024 bytes`."""
    return f"{pin['files']} file{'' if pin['files'] == 1 else 's'}, {pin['bytes']:,} bytes"


def check_files(files: list[dict[str, Any]], pin: Mapping[str, Any] | None) -> None:
    """Raise `UserError` unless the fetched files are the pinned ones."""
    if pin is not None and (found := files_pin(files)) != dict(pin):
        raise UserError(
            f"the files are not those that {FILE} pins ({files_text(found)}; pinned: {files_text(pin)});"
            " accept them with `lexmill refresh`, or put the old ones back"
        )
