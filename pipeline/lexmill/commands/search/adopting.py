"""Adopt the best trial of a search: as overrides on the command line, or as a file of conf/."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from lexmill.base.errors import LexmillError
from lexmill.base.storage import write_text
from lexmill.base.strict import flatten
from lexmill.base.yaml_file import read_yaml
from lexmill.commands.search.space import Target, Value
from lexmill.config.compose import compose
from lexmill.config.undoing import keeping, written


def command(about: Target, values: Mapping[str, Value], root: Path) -> str:
    """Return the `lexmill compose` line that keeps params.yaml and sets these values.

    If params.yaml is no composition of conf/, composing would undo it: then return the lines of params.yaml itself.
    """
    kept = keeping(root)
    if kept is None:
        lines = "".join(f"\n  {about.path}.{key}: {value}" for key, value in values.items())
        return f"set in params.yaml (composing would undo its other changes):{lines}"
    own = {f"{about.path}.{key}" for key in values}
    kept = [override for override in kept if override.lstrip("+").partition("=")[0] not in own]
    return _line([*kept, *(f"{about.path}.{key}={written(value)}" for key, value in values.items())])


def _line(overrides: list[str]) -> str:
    return f"lexmill compose {' '.join(map(shlex.quote, overrides))}"


def adopt(name: str, about: Target, values: Mapping[str, Value], root: Path) -> tuple[Path, str]:
    """Write the model's whole entry with these values as a choice of conf/; return its path and the line that takes it.

    The line repeats keys that an experiment of conf/ would override.
    """
    entry = about.with_values(values)["models"][about.name]
    choice = f"{name}_found"
    path = root / "conf" / "model" / f"{choice}.yaml"
    needed = _checkpoints(about, entry, root)
    defaults = {"defaults": [*needed, "_self_"]} if needed else {}
    text = yaml.safe_dump({**defaults, **entry}, sort_keys=False, allow_unicode=True)
    write_text(path, f"# Found by `lexmill search {name}`.\n{text}")
    take = f"model@{about.path}={choice}"
    kept = keeping(root)
    if kept is None:
        return path, command(about, values, root)
    kept = [override for override in kept if not override.lstrip("+~").startswith(f"{about.path}.")]
    try:
        found = yaml.safe_load(compose([*kept, take], root))["models"][about.name]
    except LexmillError:  # the model is in no defaults list: it is added, not replaced
        take, found = f"+{take}", entry
    there = flatten(found)
    again = {key: value for key, value in flatten(entry).items() if there.get(key, ...) != value}
    return path, _line([*kept, take, *(f"{about.path}.{key}={written(value)}" for key, value in again.items())])


def _checkpoints(about: Target, entry: Mapping[str, Any], root: Path) -> list[str]:
    """Return the lines of a defaults list for the entry's checkpoints, which came with the choice it replaces.

    A checkpoint that conf/ lacks is written there.
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
