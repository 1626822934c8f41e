"""The stages of dvc.yaml and what they need, with every `foreach` written out: plain YAML, no DVC.

DVC knows more forms than this project uses (`matrix`, `vars`, sub-folders); a stage in a form that is not known here is
drawn as one box, without the edges that cannot be seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

_REFERENCE = re.compile(r"\$\{([^}]*)\}")


@dataclass(frozen=True)
class Stage:
    """One box of the drawing: `kind` is the stage's name in dvc.yaml, `item` its key ("" without foreach).

    `needs` are the addresses of the stages that it depends on directly.
    """

    kind: str
    item: str
    description: str
    needs: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        """The name that DVC gives it: `train@gpt`."""
        return f"{self.kind}@{self.item}" if self.item else self.kind


def stages(dag: Any, params: Any) -> list[Stage]:
    """The stages of a dvc.yaml.

    Args:
        dag: the parsed dvc.yaml.
        params: the parsed params.yaml, whose values `${...}` names.

    Returns:
        The stages in the order of the file, the items of a `foreach` in its own order.
    """
    written = list(_written_out(dag, params))
    owners = {out: stage.address for stage, _, outs in written for out in outs}
    # A dependency on a folder is one on everything made inside of it.
    inside: dict[str, list[str]] = {}
    for out, owner in owners.items():
        for parent in PurePosixPath(out).parents:
            inside.setdefault(str(parent), []).append(owner)
    found = []
    for stage, deps, _ in written:
        needs: dict[str, None] = {}
        for dep in deps:
            holders = [owners[str(p)] for p in (PurePosixPath(dep), *PurePosixPath(dep).parents) if str(p) in owners]
            needs |= dict.fromkeys([*holders, *inside.get(dep, [])])
        needs.pop(stage.address, None)
        found.append(Stage(stage.kind, stage.item, stage.description, tuple(needs)))
    return found


def _written_out(dag: Any, params: Any) -> Iterator[tuple[Stage, list[str], list[str]]]:
    """Each stage with the paths that it reads and those that it makes."""
    bodies = dag.get("stages") if isinstance(dag, Mapping) else None
    for kind, body in (bodies if isinstance(bodies, Mapping) else {}).items():
        if not isinstance(body, Mapping):
            continue
        do = body.get("do")
        if "foreach" not in body or not isinstance(do, Mapping):
            yield Stage(str(kind), "", str(body.get("desc", ""))), _paths(body, ("deps",), params), _outs(body, params)
            continue
        for key, names in _items(body["foreach"], params):
            stage = Stage(str(kind), key, str(do.get("desc", "")))
            yield stage, _paths(do, ("deps",), names), _outs(do, names)


def _items(foreach: Any, params: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """The items of a foreach: each one's key, and the values that its `${...}` may name."""
    values = foreach
    if isinstance(foreach, str):
        reference = _REFERENCE.fullmatch(foreach.strip())
        values = _lookup(params, reference[1]) if reference else None
    base = dict(params) if isinstance(params, Mapping) else {}
    if isinstance(values, Mapping):
        for key, item in values.items():
            yield str(key), {**base, "key": str(key), "item": item}
    elif isinstance(values, Sequence) and not isinstance(values, str):
        for i, item in enumerate(values):
            yield (str(i) if isinstance(item, Mapping) else str(item)), {**base, "item": item}


def _outs(body: Mapping[str, Any], names: Any) -> list[str]:
    return _paths(body, ("outs", "metrics", "plots"), names)


def _paths(body: Mapping[str, Any], lists: Sequence[str], names: Any) -> list[str]:
    """The paths in lists of a stage, each entry `path` or `{path: {...}}`."""
    found = []
    for name in lists:
        entries = body.get(name)
        for entry in entries if isinstance(entries, list) else []:
            path = next(iter(entry), "") if isinstance(entry, Mapping) else entry
            found.append(str(PurePosixPath(_filled(str(path), names))))
    return found


def _filled(text: str, names: Any) -> str:
    """The text with each `${a.b}` replaced by its value; one that has none stays as it is."""

    def value(match: re.Match[str]) -> str:
        found = _lookup(names, match[1])
        return match[0] if found is None else str(found)

    return _REFERENCE.sub(value, text)


def _lookup(data: Any, dotted: str) -> Any:
    for part in dotted.strip().split("."):
        if not isinstance(data, Mapping) or part not in data:
            return None
        data = data[part]
    return data


def depths(found: Sequence[Stage]) -> dict[str, int]:
    """The length of the longest chain before each stage; stages in a cycle, which DVC refuses, are left out."""
    depth: dict[str, int] = {}
    waiting = {stage.address: {n for n in stage.needs} for stage in found}
    while True:
        ready = [name for name, needs in waiting.items() if needs <= depth.keys()]
        if not ready:
            return depth
        for name in ready:
            depth[name] = max((depth[n] + 1 for n in waiting.pop(name)), default=0)


def direct_needs(found: Sequence[Stage]) -> dict[str, tuple[str, ...]]:
    """Each stage's needs without those that follow from its other needs (the transitive reduction)."""
    order = depths(found)
    needs = {stage.address: stage.needs for stage in found if stage.address in order}
    before: dict[str, set[str]] = {}
    for name in sorted(needs, key=order.__getitem__):
        before[name] = set(needs[name]).union(*(before[n] for n in needs[name]))
    return {name: tuple(n for n in own if not any(n in before[other] for other in own)) for name, own in needs.items()}
