"""Find which stages a code change concerns, before the stage `code` updates code.json.

DVC compares the present `code.json`, which is older than the code until `code` has run. Here stages are compared with
the digests that it will write, so a comment concerns no other stage, and a changed network only its own models.
Cost: a third of a second where some code changed, else nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from lexmill.base import code_history, layout
from lexmill.base.code import Closure, Code
from lexmill.base.strict import flatten

STAGE = "code"


class CodeChanges:
    """Compares the code of stages with their last recorded run; `node` is DVC's stage `code`, if there is one."""

    def __init__(self, node: Any, root: Path) -> None:
        self._root, self._file = root, str(root / layout.CODE)
        self._writes = node is not None and any(out.fs_path == self._file for out in node.outs)
        self._stale = self._writes and bool(node.status())

    def status(self, node: Any) -> tuple[dict[str, list[Any]], tuple[str, ...]]:
        """Return DVC's status of a stage without its code, and phrases for what changed in its code.

        Raises:
            UserError: a file of the package is not Python.
        """
        from dvc.dependency.param import ParamsDependency

        found: dict[str, list[Any]] = node.status()
        if not self._writes:
            return found, ()
        own = {str(dep): dep for dep in node.deps if isinstance(dep, ParamsDependency) and dep.fs_path == self._file}
        kept = {name: [_without(entry, own) for entry in entries] for name, entries in found.items()}
        differs = kept != found
        if not (self._stale or differs):
            return kept, ()
        # One change may affect several digests of a stage: the report has one for each kind.
        return kept, tuple(dict.fromkeys(phrase for dep in own.values() for phrase in self._phrases(dep)))

    def keep(self) -> None:
        """Keep the parts of the present code, to explain the next change."""
        if self._writes and not code_history.remembers(self._root):
            code_history.remember(self._closures, self._root)

    @cached_property
    def _closures(self) -> dict[tuple[str, ...], Closure]:
        package = self._root / "pipeline" / "lexmill"
        return (Code(package) if package.is_dir() else Code()).closures()

    def _phrases(self, dep: Any) -> Iterator[str]:
        recorded = dep.hash_info.value or {}
        for key in dep.params:
            before = recorded.get(key)
            now = {name: closure for name, closure in self._closures.items() if _under(name, key)}
            if before is None:
                yield "code not recorded yet"
            elif not now:
                yield f"code gone: {key}"
            else:
                known = flatten(before)
                for name, closure in now.items():
                    old = known.get(".".join(name).removeprefix(key).removeprefix("."))
                    if old != closure.digest:
                        what = code_history.difference(old, closure, self._root) if old else ""
                        yield f"code changed: {what}" if what else "its code changed"


def _without(entry: Any, paths: Collection[str]) -> Any:
    """Return an entry of DVC's status without these paths."""
    if not isinstance(entry, dict):
        return entry
    return {
        group: {path: change for path, change in items.items() if path not in paths} for group, items in entry.items()
    }


def _under(name: tuple[str, ...], key: str) -> bool:
    """Return whether a closure belongs to a key of code.json, which may name a mapping."""
    parts = tuple(key.split("."))
    return name[: len(parts)] == parts
