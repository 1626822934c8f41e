"""Report what `dvc exp run` would undo in params.yaml, and how to keep it.

`dvc exp run` composes params.yaml anew from the defaults of conf/ and its `-S` choices. Other changes (an edit by hand,
an earlier `lexmill compose experiment=full`) are lost, silently on DVC's side. `lexmill check` reports them beforehand.
In `dvc exp run` a Hydra plugin named by .dvc/config (pipeline/dvc_plugins), called before DVC writes, reports them,
keeps a copy, updates the mixtures' stages and the sources' lock entries, and refuses wrong choices before anything
runs; in a sweep it checks every combination.
Cost: up to three compositions, a third of a second each, and one for each further combination.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lexmill.base.errors import LexmillError, UserError, UserErrors
from lexmill.base.storage import sha256_bytes, write_text
from lexmill.base.strict import flatten
from lexmill.base.workspace import HOME
from lexmill.base.yaml_file import read_yaml
from lexmill.config.compose import compose
from lexmill.config.mixtures import with_mixtures
from lexmill.corpora.fetching import pins
from lexmill.params import parse
from lexmill.params.derived import PARTS

_MOST_TOLD = 8
_MOST_VALUES = 4
_ABSENT = "(absent)"


def undone(overrides: Sequence[str] = (), workspace: str | Path = ".") -> list[str]:
    """Return what a composition with these overrides undoes: `key: value in params.yaml -> value composed`, sorted.

    Keys named by the overrides do not count; nor, under another `experiment`, keys set only by the present one.

    Raises:
        UserError: params.yaml or conf/ cannot be read or composed.
    """
    return _undone_by_any([overrides], [compose(overrides, workspace)], workspace)


def _undone_by_any(combinations: Sequence[Sequence[str]], composed: Sequence[str], workspace: str | Path) -> list[str]:
    """Return what the combinations of a sweep undo (see `undone`): `key: value -> value or other value`.

    Args:
        combinations: the overrides of each.
        composed: what each composes to.
    """
    here = _here(workspace)
    base: dict[str, Any] | None = None
    found: dict[str, dict[str, int]] = {}
    for overrides, text in zip(combinations, composed, strict=True):
        after = _values_of(text)
        differing = {key for key in here.keys() | after.keys() if here.get(key, _ABSENT) != after.get(key, _ABSENT)}
        asked = [target for override in overrides if (target := _target(override))]
        differing = {key for key in differing if not any(key == one or key.startswith(f"{one}.") for one in asked)}
        if differing and any(override.startswith("experiment=") for override in overrides):
            base = _composed(_experiment(here, workspace), workspace) if base is None else base
            differing = {key for key in differing if here.get(key, _ABSENT) != base.get(key, _ABSENT)}
        for key in differing:
            values = found.setdefault(key, {})
            value = str(after.get(key, _ABSENT))
            values[value] = values.get(value, 0) + 1
    return [_line(key, here.get(key, _ABSENT), found[key], len(combinations)) for key in sorted(found)]


def _line(key: str, before: Any, after: Mapping[str, int], combinations: int) -> str:
    """Format a key, its value, and its new values with how many combinations set them."""
    shown = list(after)[:_MOST_VALUES] + ["..."] * (len(after) > _MOST_VALUES)
    some = f" (in {sum(after.values())} of {combinations} combinations)" if sum(after.values()) < combinations else ""
    return f"{key}: {before} -> {' or '.join(shown)}{some}"


def keeping(workspace: str | Path = ".") -> list[str] | None:
    """Return the overrides that compose to the present params.yaml, `experiment=full`, `a.b=3`; None where too many."""
    here = _here(workspace)
    experiment = _experiment(here, workspace)
    base = _composed(experiment, workspace)
    changed = {key: value for key, value in here.items() if base.get(key, _ABSENT) != value}
    gone = [key for key in base if key not in here]
    if len(changed) + len(gone) > _MOST_TOLD:
        return None
    found = [
        *experiment,
        *(f"{'' if key in base else '+'}{key}={written(value)}" for key, value in changed.items()),
        *(f"~{key}" for key in gone),
    ]
    try:
        return found if _composed(found, workspace) == here else None
    except LexmillError:
        return None  # a value that Hydra's grammar cannot express


def differences(workspace: str | Path = ".") -> list[str]:
    """Report what a bare `dvc exp run` would undo and how to keep it; empty where nothing differs."""
    lines = undone((), workspace)
    if not lines:
        return []
    return [
        "params.yaml differs from the defaults of conf/; a bare `dvc exp run` would undo (`lexmill run` and"
        " `dvc repro` keep it):",
        *(f"  {line}" for line in lines),
        f"  {_how_to_keep(workspace)}",
    ]


def before_experiment(combinations: Sequence[Sequence[str]], workspace: Path, say: Callable[[str], None]) -> None:
    """Prepare the workspace before `dvc exp run` composes params.yaml with these overrides.

    Report what is undone and keep the file as .lexmill/params/<hash>.yaml; write the stages of mixtures in dvc.yaml and
    the entries of sources.lock.yaml for the first combination, since DVC calls only once.

    Args:
        combinations: the overrides of each experiment of a sweep, or of the one experiment.
        say: called with each line of the report.

    Raises:
        UserError, UserErrors: choices of any combination that are wrong or cannot be composed.
    """
    path = workspace / "params.yaml"
    composed = _composed_all(combinations, workspace)
    if path.is_file() and (lines := _undone_by_any(combinations, composed, workspace)):
        text = path.read_text(encoding="utf-8")
        kept = workspace / HOME / "params" / f"{sha256_bytes(text.encode())[:12]}.yaml"
        write_text(kept, text)
        say("dvc exp run composes params.yaml from the defaults of conf/ and its own choices; this undoes")
        for line in lines[:_MOST_TOLD]:
            say(f"  {line}")
        if len(lines) > _MOST_TOLD:
            say(f"  and {len(lines) - _MOST_TOLD} more")
        say(f"  it is kept as {kept.relative_to(workspace)}; {_how_to_keep(workspace, '-S ')}")
    _write_what_follows(composed[0], workspace, say)


def _composed_all(combinations: Sequence[Sequence[str]], workspace: Path) -> list[str]:
    composed: list[str] = []
    errors: dict[str, None] = {}
    for overrides in combinations:
        try:
            composed.append(compose(overrides, workspace))
        except UserErrors as raised:
            errors.update(dict.fromkeys(raised.errors))
        except UserError as error:
            errors[str(error)] = None
    if errors:
        raise UserErrors(list(errors))
    return composed


def _write_what_follows(composed: str, workspace: Path, say: Callable[[str], None]) -> None:
    """Write what `lexmill compose` writes besides params.yaml."""
    import yaml

    if pins.complete(parse(yaml.safe_load(composed)), workspace):
        say(f"{pins.FILE}: its entries follow these choices")
    dag = workspace / "dvc.yaml"
    before = dag.read_text(encoding="utf-8")
    after = with_mixtures(before, yaml.safe_load(composed).get("mixtures") or {})
    if after != before:
        write_text(dag, after)
        say("dvc.yaml: the stages of mixtures follow these choices")


def _how_to_keep(workspace: str | Path, mark: str = "") -> str:
    """Say how to keep params.yaml, with overrides as typed in a shell."""
    found = keeping(workspace)
    if found is None:
        return "to keep it, write it into a file of conf/ (conf/experiment/, conf/model/, ...)"
    how = " ".join(f"{mark}{shlex.quote(override)}" for override in found)
    return f"to keep it, give {how}" if mark else f"to keep it: dvc exp run -S {' -S '.join(map(shlex.quote, found))}"


def _experiment(here: Mapping[str, Any], workspace: str | Path) -> list[str]:
    """Return the override of the experiment that params.yaml names, if conf/ has it and it is not the default."""
    name = here.get("experiment")
    there = isinstance(name, str) and (Path(workspace) / "conf" / "experiment" / f"{name}.yaml").is_file()
    return [f"experiment={name}"] if there and _composed((), workspace).get("experiment") != name else []


def _here(workspace: str | Path) -> dict[str, Any]:
    return _values(read_yaml(Path(workspace) / "params.yaml"))


def _composed(overrides: Sequence[str], workspace: str | Path) -> dict[str, Any]:
    return _values_of(compose(overrides, workspace))


def _values_of(composed: str) -> dict[str, Any]:
    import yaml

    return _values(yaml.safe_load(composed))


def _values(data: Any) -> dict[str, Any]:
    """Flatten to dotted keys, without derived parts and empty mappings."""
    plain = {key: value for key, value in data.items() if key not in PARTS} if isinstance(data, dict) else data
    return {key: value for key, value in flatten(plain).items() if value != {}}


def _target(override: str) -> str:
    """Return the key that an override sets: `a.b` of `+a.b=3`, `tokenizers.x` of `tokenizer@tokenizers.x=bpe_2k`."""
    key = override.lstrip("+~").partition("=")[0]
    return key.rpartition("@")[2] if "@" in key else "" if key == "experiment" else key


def written(value: Any) -> str:
    """Format a value for Hydra's overrides."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list):
        return f"[{','.join(map(written, value))}]"
    if isinstance(value, str) and not re.fullmatch(r"[A-Za-z_][\w./-]*", value):
        # Double quotes fit within a shell's single ones. A backslash is literal except before a quote.
        return '"' + re.sub(r'(\\*)("|$)', lambda found: found[1] * 2 + ('\\"' if found[2] else ""), value) + '"'
    return str(value)
