"""The stages of dvc.yaml and their needs, with every `foreach` expanded, from plain YAML without DVC.

A stage in a form that this project does not use (`matrix`, `vars`, sub-folders) becomes one box without unknown edges.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

_REFERENCE = re.compile(r"\$\{([^}]*)\}")
_DEPS, _OUTS = ("deps",), ("outs", "metrics", "plots")


@dataclass(frozen=True)
class Stage:
    """One box of the drawing.

    `kind` is the stage's name in dvc.yaml, `item` its key ("" without foreach), `needs` its direct needs' addresses.
    """

    kind: str
    item: str
    description: str
    needs: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        """Return DVC's name for it: `train@gpt`."""
        return f"{self.kind}@{self.item}" if self.item else self.kind


def stages(dag: Any, params: Any) -> list[Stage]:
    """Return the stages of a parsed dvc.yaml with the values of a parsed params.yaml, in the order of the file."""
    written = list(_written_out(dag, params))
    owners = {out: stage.address for stage, _, outs in written for out in outs}
    # A dependency on a folder is one on every output inside it.
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


def outputs(dag: Any, params: Any) -> set[str]:
    """Return the paths of all outputs, metrics and plots of the stages."""
    return {out for _, _, outs in _written_out(dag, params) for out in outs}


def _written_out(dag: Any, params: Any) -> Iterator[tuple[Stage, list[str], list[str]]]:
    """Yield each stage with its inputs and outputs."""
    bodies = dag.get("stages") if isinstance(dag, Mapping) else None
    for kind, body in (bodies if isinstance(bodies, Mapping) else {}).items():
        if not isinstance(body, Mapping):
            continue
        do = body.get("do")
        if "foreach" not in body or not isinstance(do, Mapping):
            yield (
                Stage(str(kind), "", str(body.get("desc", ""))),
                _paths(body, _DEPS, params),
                _paths(body, _OUTS, params),
            )
            continue
        for key, names in _items(body["foreach"], params):
            yield Stage(str(kind), key, str(do.get("desc", ""))), _paths(do, _DEPS, names), _paths(do, _OUTS, names)


def _items(foreach: Any, params: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the items of a foreach: each key, and the values for its `${...}`."""
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


def _paths(body: Mapping[str, Any], lists: Sequence[str], names: Any) -> list[str]:
    """Return the paths in lists of a stage, each entry `path` or `{path: {...}}`."""
    found = []
    for name in lists:
        entries = body.get(name)
        for entry in entries if isinstance(entries, list) else []:
            path = next(iter(entry), "") if isinstance(entry, Mapping) else entry
            found.append(str(PurePosixPath(_filled(str(path), names))))
    return found


def _filled(text: str, names: Any) -> str:
    """Replace each `${a.b}` by its value; one without a value stays."""

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
    """Return the length of the longest chain before each stage, without stages in a cycle, which DVC refuses."""
    depth: dict[str, int] = {}
    waiting = {stage.address: set(stage.needs) for stage in found}
    while True:
        ready = [name for name, needs in waiting.items() if needs <= depth.keys()]
        if not ready:
            return depth
        for name in ready:
            depth[name] = max((depth[n] + 1 for n in waiting.pop(name)), default=0)


def direct_needs(found: Sequence[Stage]) -> dict[str, tuple[str, ...]]:
    """Return each stage's needs without those implied by its other needs (the transitive reduction)."""
    order = depths(found)
    needs = {stage.address: stage.needs for stage in found if stage.address in order}
    before: dict[str, set[str]] = {}
    for name in sorted(needs, key=order.__getitem__):
        before[name] = set(needs[name]).union(*(before[n] for n in needs[name]))
    return {name: tuple(n for n in own if not any(n in before[other] for other in own)) for name, own in needs.items()}
