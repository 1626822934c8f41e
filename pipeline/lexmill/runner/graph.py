"""Read DVC's graph once: the stages in running order, what changed in each, and what follows from that.

A no-op costs one read (about a second); only changed stages and their dependents are run. Reading uses DVC's Python
API, running its command line (`lexmill.runner.supervised`): the API in threads can run one stage twice.

The stage `code` writes `code.json`, on which all others depend; a stage counts as changed by its code only where its
own part of that file will differ (`lexmill.runner.code_changes`).
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from lexmill.base import layout
from lexmill.base.errors import LexmillError, RetryableError, UserError
from lexmill.base.quiet import quieten
from lexmill.base.strict import nearest
from lexmill.config.mixtures import check_mixtures
from lexmill.runner.code_changes import STAGE as CODE_STAGE
from lexmill.runner.code_changes import CodeChanges
from lexmill.runner.mending import damaged_caches, forget_collections, mend_code_file, mend_lock_file, mend_rwlock
from lexmill.runner.verified import Verified


@dataclass(frozen=True)
class Stage:
    """One stage of the graph.

    `needs` are its direct dependencies; `changed` has short phrases for what differs from its last recorded run.
    `forced`: DVC does not see the change and must be forced to run it.
    """

    name: str
    needs: tuple[str, ...]
    changed: tuple[str, ...]
    forced: bool = False


@dataclass(frozen=True)
class Plan:
    """The selected stages, each after those it needs."""

    stages: tuple[Stage, ...]

    @property
    def todo(self) -> tuple[Stage, ...]:
        """Return the changed stages and their dependents, in running order."""
        reasons = self.reasons()
        return tuple(stage for stage in self.stages if stage.name in reasons)

    @property
    def unchanged(self) -> int:
        """Return how many stages need nothing."""
        return len(self.stages) - len(self.todo)

    def reasons(self) -> dict[str, tuple[str, ...]]:
        """Return why each stage of `todo` must run: its own changes, then the stages it follows, except `code`."""
        found: dict[str, tuple[str, ...]] = {}
        for stage in self.stages:
            follows = tuple(f"follows {name}" for name in stage.needs if name in found and name != CODE_STAGE)
            if stage.changed or follows:
                found[stage.name] = stage.changed + follows
        return found


def read(root: str | Path = ".", targets: Sequence[str] = (), also: Mapping[str, str] = MappingProxyType({})) -> Plan:
    """Read the graph and what changed.

    Args:
        targets: stages (`train@gpt`) or groups (`train`); they and their dependencies are read. Empty: all.
        also: stages with a change that DVC does not see, and the change.

    Raises:
        UserError: no DVC project here, an error in dvc.yaml, mixtures that differ from params.yaml, an unknown target,
            an output with other bytes than dvc.lock names.
        RetryableError: another DVC process holds its lock, or the disk is full.
    """
    quieten()
    root = Path(root).resolve()
    check_mixtures(root)
    mend_code_file(root / layout.CODE)
    try:
        return _read(root, targets, also)
    except LexmillError:
        raise
    except Exception as error:  # whatever SQLite and DVC make of a damaged cache
        if isinstance(error, sqlite3.OperationalError) and re.search("full|disk I/O error", str(error)):
            raise RetryableError(f"DVC's cache of hashes cannot be written ({error}); run again when it can") from None
        damaged = damaged_caches(root)
        if not damaged:
            raise
        for path in damaged:
            path.unlink()
    return _read(root, targets, also)


def _read(root: Path, targets: Sequence[str], also: Mapping[str, str]) -> Plan:
    from dvc.exceptions import DvcException, NotDvcRepoError
    from dvc.lock import LockError
    from dvc.repo import Repo

    try:
        with Repo(str(root)) as repo, repo.lock:
            if repo.tmp_dir:
                mend_rwlock(Path(repo.tmp_dir))
            forget_collections(repo)
            mend_lock_file(root / "dvc.lock")
            graph = repo.index.graph
            nodes = {stage_name(node, root): node for node in graph.nodes if getattr(node, "cmd", None)}
            needs = {
                name: tuple(
                    sorted(stage_name(after, root) for after in graph.successors(node) if after in nodes.values())
                )
                for name, node in nodes.items()
            }
            wanted = _closure(_select(nodes, targets), needs)
            code = CodeChanges(nodes.get(CODE_STAGE), root)
            changed, verified = {}, Verified(root)
            for name in wanted:
                status, in_code = code.status(nodes[name])
                changed[name] = in_code + _changes(status)
                verified.add(nodes[name], status)
            code.keep()
            verified.check()
    except NotDvcRepoError:
        raise UserError("no DVC project here; run this in the project's folder", root) from None
    except LockError as error:
        raise RetryableError(f"another DVC process is at work here; try again ({_text(error)})") from None
    except DvcException as error:
        raise UserError(f"DVC cannot read the pipeline: {_text(error)}{_remedy(error)}", root / "dvc.yaml") from None
    return Plan(
        tuple(
            Stage(name, needs[name], (*changed[name], *([also[name]] if name in also else [])), name in also)
            for name in _order(wanted, needs)
        )
    )


def stage_name(stage: Any, root: Path) -> str:
    """Return the address of a DVC stage relative to `root`."""
    path = Path(stage.path).resolve()
    name = getattr(stage, "name", None)
    if path == root / "dvc.yaml" and name:
        return str(name)
    relative = path.relative_to(root).as_posix()
    return f"{relative}:{name}" if name else relative


def _text(error: BaseException) -> str:
    """Return an exception's text on one line, with its cause."""
    texts = [str(error)]
    if error.__cause__ is not None and str(error.__cause__) not in texts[0]:
        texts.append(str(error.__cause__))
    return " ".join(" ".join(texts).split())


def _remedy(error: BaseException) -> str:
    text = _text(error)
    if absent := re.search(r"'stages\..*\.foreach'.*Could not find '([\w.]+)'", text):
        return f"; params.yaml needs it: `{absent[1]}: {{}}` where there is none"
    return "; `git init` makes it one" if text.endswith("is not a git repository") else ""


def _select(nodes: dict[str, Any], targets: Sequence[str]) -> list[str]:
    if not targets:
        return list(nodes)
    chosen: list[str] = []
    groups = {name.partition("@")[0] for name in nodes}
    for target in targets:
        found = [name for name in nodes if target in (name, name.partition("@")[0])]
        if not found:
            hint = nearest(target, {*nodes, *groups})
            hint = hint if hint.startswith(", did") else nearest(target, groups)
            raise UserError(f"there is no stage '{target}'{hint}")
        chosen.extend(found)
    return chosen


def _closure(chosen: Iterable[str], needs: dict[str, tuple[str, ...]]) -> set[str]:
    found: set[str] = set()
    stack = list(chosen)
    while stack:
        name = stack.pop()
        if name not in found:
            found.add(name)
            stack.extend(needs[name])
    return found


def _order(wanted: set[str], needs: dict[str, tuple[str, ...]]) -> list[str]:
    """Sort each stage after those it needs: depth first by name, deterministic."""
    order: dict[str, None] = {}

    def visit(name: str) -> None:
        if name not in order:
            for before in needs[name]:
                visit(before)
            order[name] = None

    for name in sorted(wanted):
        visit(name)
    return list(order)


def _changes(status: dict[str, list[Any]]) -> tuple[str, ...]:
    """Turn DVC's status of a stage into short phrases: `params models.gpt.recipe modified`."""
    phrases: list[str] = []
    for entries in status.values():
        for entry in entries:
            if isinstance(entry, str):
                phrases.append(entry)
                continue
            for group, items in entry.items():
                what = {"changed deps": "input", "changed outs": "output"}.get(group, group)
                phrases.extend(_phrase(what, path, change) for path, change in items.items())
    return tuple(phrases)


def _phrase(what: str, path: str, change: Any) -> str:
    if isinstance(change, dict):  # a params file: {key: modified}
        return ", ".join(f"param {key} {how}" for key, how in change.items())
    how = {"deleted": "missing"}.get(change, change)
    return f"{what} {path} {how}"
