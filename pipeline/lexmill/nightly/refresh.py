"""Check every moving source and write the results into sources.lock.yaml, all at once.

A source that cannot be reached, or is gone, keeps its pin, so the fetched copy stays in use. The file is replaced in
one step and only while no run is at work, since a run records its pins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lexmill.base.errors import LexmillError, RetryableError, UserError
from lexmill.base.progress import bar
from lexmill.base.storage import read_json, write_json
from lexmill.base.strict import nearest
from lexmill.base.workspace import HOME, run_lock
from lexmill.corpora.fetching import pins
from lexmill.corpora.fetching.fetch import describe, prefix_errors
from lexmill.nightly.looking import Found, find
from lexmill.params import Params
from lexmill.params.corpora import FileSource, HubSource, RegisteredSource, Source

SEEN = HOME / "seen.json"


@dataclass(frozen=True)
class Look:
    """The check of one source.

    Attributes:
        group, name: its place in params.yaml.
        old: its pin before; None: it had none.
        found: what it is now; None: unknown, because of `error`.
    """

    group: str
    name: str
    source: Source | RegisteredSource
    old: Mapping[str, Any] | None
    found: Found | None = None
    error: LexmillError | None = None

    @property
    def moved(self) -> bool:
        return self.found is not None and self.found.pin != self.old

    @property
    def stuck(self) -> bool:
        """Return whether fetch cannot proceed: no pin before, and none now."""
        return self.error is not None and self.old is None and pins.needs_pin(self.source)

    def __str__(self) -> str:
        place = f"{self.group}.{self.name}"
        if self.found is None:
            kept = "has no pin" if self.old is None else f"stays at {shown(self.old)}"
            return f"{place} {kept}: {self.error}"
        if not self.moved:
            return f"{place} stays at {shown(self.found.pin)}"
        return f"{place}: {change(self.old, self.found.pin)}"


def refresh(params: Params, root: Path, names: Sequence[str] = (), *, dry_run: bool = False) -> list[Look]:
    """Check the moving sources of these corpora and checkpoints (default all) and write their pins.

    With `dry_run` only the download cache is written.

    Raises:
        UserError: a name that is not in params.yaml, or a damaged lock file.
        RetryableError: a run holds the workspace.
    """
    chosen = choose(params, names)
    before, seen = pins.completed(params, pins.read(root)), _seen(root)
    looks = []
    with bar("look at the sources", len(chosen)) as progress:
        for group, name, source in chosen:
            old = pins.pin_of(source, before[group][name])
            looks.append(_look(Look(group, name, source, old), root, seen.get(f"{group}.{name}", {})))
            progress.update(1)
    if not dry_run:
        with run_lock("lexmill refresh", root):
            entries = pins.completed(params, pins.read(root))
            for one in looks:
                if one.found is not None:
                    entries[one.group][one.name] = {"pin": one.found.pin, "of": pins.identity(one.source)}
                    seen[f"{one.group}.{one.name}"] = one.found.seen
            pins.write(entries, root)
            write_json(root / SEEN, {place: said for place, said in seen.items() if said})
    return looks


def _seen(root: Path) -> dict[str, Any]:
    """Return the validators that servers gave for addresses, by source: a cache, so not in git."""
    try:
        found = read_json(root / SEEN)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def choose(params: Params, names: Sequence[str]) -> list[tuple[str, str, Source | RegisteredSource]]:
    """Return (group, name, source) of these moving sources, or all; raise `UserError` for an unknown name."""
    known = {name for named in pins.sources(params).values() for name in named}
    for name in names:
        if name not in known:
            raise UserError(f"there is no corpus or checkpoint '{name}'{nearest(name, known)}")
    return [
        (group, name, source)
        for group, named in pins.sources(params).items()
        for name, source in named.items()
        if pins.moves(source) and (name in names or not names)
    ]


def _look(one: Look, root: Path, seen: dict[str, Any]) -> Look:
    try:
        with prefix_errors(name_of(one.source)):
            found = find(one.source, root, None if one.old is None else dict(one.old), seen)
    except (UserError, RetryableError) as error:
        return replace(one, error=error)
    return replace(one, found=found)


def name_of(source: Source | RegisteredSource) -> str:
    """Return a moving source's name for messages."""
    match source:
        case RegisteredSource():
            return f"registered model {source.model}"
        case FileSource():
            return "file source"
        case HubSource():
            return f"{describe(source)} at {source.revision or 'its main branch'}"
    return describe(source)


def changes(before: Mapping[str, Mapping[str, pins.Entry]], after: Mapping[str, Mapping[str, pins.Entry]]) -> list[str]:
    """Return what moved between two lock files, a line per source."""
    lines = []
    for group in pins.GROUPS:
        for name, entry in after[group].items():
            old, new = before[group].get(name, {}).get("pin"), entry["pin"]
            if isinstance(new, dict) and new != old:
                lines.append(f"{group}.{name}: {change(old if isinstance(old, dict) else None, new)}")
    return lines


def change(old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> str:
    """Format as `1.3.0 -> 1.4.0`, or the new pin alone where there was none."""
    if old is None:
        return f"pinned at {shown(new)}"
    before, after = shown(old), shown(new)
    if before == after:  # the same version with other bytes
        before, after = f"{before} (sha256 {old['sha256'][:12]})", f"{after} (sha256 {new['sha256'][:12]})"
    return f"{before} -> {after}"


def shown(pin: Mapping[str, Any]) -> str:
    """Describe a pin: a version, a commit, hashes, files."""
    if "version" in pin:
        return str(pin["version"])
    if "revision" in pin:
        return f"commit {str(pin['revision'])[:12]}"
    if "files" in pin:
        return pins.files_text(pin)
    return f"sha256 {', '.join(str(sha256)[:12] for sha256 in pin['sha256'])}"
