"""How to take what a search has found: the choices as typed, or as a file of conf/; both are composed to be sure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from lexmill.base.errors import LexmillError
from lexmill.base.storage import write_text
from lexmill.base.strict import flatten as flat
from lexmill.base.yaml_file import read_yaml
from lexmill.commands.search.space import Target, Value
from lexmill.config.compose import compose
from lexmill.config.undoing import keeping, written


def command(about: Target, values: Mapping[str, Value], root: Path) -> str:
    """The `lexmill compose` line that keeps params.yaml as it stands and takes these values.

    Where params.yaml is no composition of a few choices, composing would undo it: then the lines of params.yaml itself.
    """
    kept = keeping(root)
    if kept is None:
        lines = "".join(f"\n  {about.path}.{key}: {value}" for key, value in values.items())
        return f"set in params.yaml (a composition would undo what else stands there):{lines}"
    own = {f"{about.path}.{key}" for key in values}
    kept = [override for override in kept if override.lstrip("+").partition("=")[0] not in own]
    return _line([*kept, *(f"{about.path}.{key}={written(value)}" for key, value in values.items())])


def _line(overrides: list[str]) -> str:
    return f"lexmill compose {' '.join(map(shlex.quote, overrides))}"


def adopt(name: str, about: Target, values: Mapping[str, Value], root: Path) -> tuple[Path, str]:
    """Write the model's whole entry with these values as a choice of conf/, and give the line that takes it.

    An experiment of conf/ may set some of the keys again: the line then names those.
    """
    entry = about.with_values(values)["models"][about.name]
    choice = f"{name}_found"
    path = root / "conf" / "model" / f"{choice}.yaml"
    head = f"# Found by `lexmill search {name}`.\n"
    needed = _checkpoints(about, entry, root)
    defaults = {"defaults": [*needed, "_self_"]} if needed else {}
    write_text(path, head + yaml.safe_dump({**defaults, **entry}, sort_keys=False, allow_unicode=True))
    take = f"model@{about.path}={choice}"
    kept = keeping(root)
    if kept is None:
        return path, command(about, values, root)
    kept = [override for override in kept if not override.lstrip("+~").startswith(f"{about.path}.")]
    try:
        found = yaml.safe_load(compose([*kept, take], root))["models"][about.name]
    except LexmillError:  # the model is no default: it is added, not replaced
        take, found = f"+{take}", entry
    again = _differing(entry, found)
    return path, _line([*kept, take, *(f"{about.path}.{key}={written(value)}" for key, value in again.items())])


def _checkpoints(about: Target, entry: Mapping[str, Any], root: Path) -> list[str]:
    """The lines of a defaults list that bring the checkpoints which the entry names, each written where conf/ lacks it.

    They came with the choice that the new one replaces.
    """
    folder, found = root / "conf" / "checkpoint", []
    names = {entry["data"]["tokenizer"], entry["start"].removeprefix("artifacts/checkpoints/")}
    for name, checkpoint in about.data.get("checkpoints", {}).items():
        if name not in names:
            continue
        choice = next((one.stem for one in sorted(folder.glob("*.yaml")) if read_yaml(one) == checkpoint), None)
        if choice is None:
            choice = f"{name}_found"
            write_text(folder / f"{choice}.yaml", yaml.safe_dump(checkpoint, sort_keys=False, allow_unicode=True))
        found.append(f"/checkpoint/{choice}@_global_.checkpoints.{name}")
    return found


def _differing(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    there = flat(found)
    return {key: value for key, value in flat(wanted).items() if there.get(key, ...) != value}
