"""Compose conf/ into params.yaml with Hydra, to the same bytes as `dvc exp run`, and its mixtures into dvc.yaml.

`${derived:PART}` in conf/ is resolved to what follows from the models (`lexmill.params.derived`); `register` adds the
resolver to OmegaConf, here and, by a plugin, in `dvc exp run`.

`dvc repro` reads the present params.yaml and never composes; `dvc exp run` first composes the defaults and its `-S`
choices again, which undoes edits by hand. `lexmill.config.undoing` reports what it would undo.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexmill.base.errors import UserError, UserErrors
from lexmill.base.shown import key_text
from lexmill.base.storage import write_text
from lexmill.base.strict import flatten, nearest
from lexmill.base.yaml_file import check_budget, read_yaml
from lexmill.config.interpolations import bounded
from lexmill.config.mixtures import write_mixtures
from lexmill.config.unresolved import literal, unresolved
from lexmill.corpora.fetching import pins
from lexmill.params import load, parse
from lexmill.params.derived import GROUPS, PARTS, derive

if TYPE_CHECKING:
    from omegaconf import DictConfig


def compose(overrides: Sequence[str] = (), workspace: str | Path = ".") -> str:
    """Compose conf/config.yaml with Hydra overrides and return it as the YAML text of params.yaml.

    Args:
        overrides: in Hydra's grammar, such as `experiment=full` or `models.gpt.recipe.length='2000 steps'`.
        workspace: the folder that holds conf/.

    Raises:
        UserError: Hydra cannot apply an override; names the nearest that it can.
        UserErrors: files of conf/ are not YAML, or the composed params are wrong.
    """
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    register()
    folder = Path(workspace).resolve() / "conf"
    if not (folder / "config.yaml").is_file():
        raise UserError("there is no conf/config.yaml here; run this in the project's folder", folder)
    for file in sorted(folder.rglob("*.yaml")):
        check_budget(file)  # Hydra reads without one
    given = key_text(" ".join(overrides), 500) if overrides else "its defaults"
    try:
        with bounded():
            config = _config(overrides, folder)
            OmegaConf.resolve(config)
        text = OmegaConf.to_yaml(config)
        plain = OmegaConf.to_container(config)
    except Exception as error:  # Hydra and OmegaConf raise almost anything for wrong input, also AssertionError
        known = isinstance(error, HydraException | OmegaConfBaseException)
        if isinstance(error, OSError | MemoryError) and not known:
            raise
        if not known and (errors := list(_file_errors(folder))):
            raise UserErrors(errors) from None
        if wrong := list(unresolved(error, partial(_config, overrides, folder), overrides, folder)):
            raise UserErrors(wrong) from None
        first = str(error).strip().split("\n")[0].rstrip(".")
        deep = isinstance(error, RecursionError) or first.startswith("RecursionError")
        cause = "it is nested too deeply" if deep else first or type(error).__name__
        hint = _hint(cause, overrides, folder)
        raise UserError(f"conf/ cannot be composed with {given}: {cause}{hint}") from None
    parse(plain, "the composed params")
    return text


def _config(overrides: Sequence[str], folder: Path) -> DictConfig:
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir

    with initialize_config_dir(str(folder), version_base=None):
        return hydra_compose(config_name="config", overrides=list(overrides))


def register() -> None:
    """Let `OmegaConf.resolve` resolve `${derived:PART}` to what follows from the models."""
    from omegaconf import OmegaConf

    def derived(part: str, *, _root_: DictConfig) -> DictConfig:
        # OmegaConf resolves in place and in order, and would take `${` of a text that it has resolved for a reference.
        keys = list(_root_)
        plain = {
            group: OmegaConf.to_container(_root_[group], resolve=keys.index(group) > keys.index(part))
            for group in GROUPS
            if group in keys
        }
        return OmegaConf.create(literal(derive(plain)[part]))

    OmegaConf.register_new_resolver("derived", derived, replace=True)


def _file_errors(folder: Path) -> Iterator[UserError]:
    for file in sorted(folder.rglob("*.yaml")):
        try:
            read_yaml(file)
        except UserError as error:
            yield error


def _hint(cause: str, overrides: Sequence[str], folder: Path) -> str:
    """Suggest what was meant, for Hydra's `Could not find 'group/choice'` or `Could not override 'a.b.c'`."""
    bare = [override for override in overrides if "=" not in override and not override.startswith("~")]
    if bare:
        return f"; give it as {bare[0]}=VALUE"
    if found := re.search(r"Could not find '(.+)/(.+?)'", cause):
        group, choice = found.groups()
        return nearest(choice, [file.stem for file in (folder / group).glob("*.yaml")])
    if found := re.search(r"Could not override '(.+?)'", cause):
        if meant := _packaged(found[1], overrides, folder):
            return f"; write {' or '.join(meant)}"
        known = _present(folder.parent / "params.yaml")
        if found[1] not in known and found[1] in _defaults(folder.parent / "params.yaml"):
            return f"; conf/ leaves it at its default, so write +{found[1]}=VALUE"
        paths = {key.rsplit(".", up)[0] for key in known for up in range(key.count(".") + 1)}
        hint = nearest(found[1], paths)
        return hint if hint.startswith(", did") else "; `lexmill params` lists the keys"
    return ""


def _present(path: Path) -> dict[str, Any]:
    """Return the keys of the present params.yaml, which is about to be replaced and may be wrong."""
    try:
        return flatten(read_yaml(path))
    except UserError:
        return {}


def _defaults(path: Path) -> dict[str, Any]:
    """Return the keys of the present choices, with those that have their defaults."""
    try:
        return flatten(dataclasses.asdict(load(path)))
    except UserError:
        return {}


def _packaged(name: str, overrides: Sequence[str], folder: Path) -> list[str]:
    """Return what a choice without its package may mean: by its group, or by its entry."""
    choice = next((value for key, _, value in (one.partition("=") for one in overrides) if key == name), "")
    config = read_yaml(folder / "config.yaml")
    listed = config.get("defaults") if isinstance(config, Mapping) else None
    entries = listed if isinstance(listed, list) else []
    defaults = [str(key) for one in entries if isinstance(one, Mapping) for key in one]
    keys = [key for key in defaults if "@" in key and name in (key.partition("@")[0], key.rpartition(".")[2])]
    return [f"{key}={choice}" for key in keys]


def write_params(overrides: Sequence[str] = (), workspace: str | Path = ".") -> Path:
    """Compose and write params.yaml, the stages of its mixtures and its sources' lock entries; nothing on an error."""
    path = Path(workspace) / "params.yaml"
    write_text(path, compose(overrides, workspace))
    write_mixtures(workspace)
    pins.complete(load(path), workspace)
    return path


def write_stages(overrides: Sequence[str] = (), workspace: str | Path = ".") -> Path:
    """Write what follows from the present params.yaml: its derived parts, stages of mixtures, entries of sources.

    The rest of the file stays as it is, comments included.

    Raises:
        UserError: overrides were given, which would change nothing.
        UserErrors: params.yaml has errors.
    """
    if overrides:
        raise UserError(
            f"--keep leaves params.yaml as it is, so {key_text(' '.join(overrides), 500)} would change nothing"
        )
    path = Path(workspace) / "params.yaml"
    data = read_yaml(path)
    if isinstance(data, dict):
        kept = {key: value for key, value in data.items() if key not in PARTS}
        parse(kept, path)
        # DVC needs each mapping; a file of an earlier version lacks the newest.
        if (whole := {**kept, **{group: {} for group in GROUPS if group not in kept}, **derive(kept)}) != data:
            write_text(path, _with_parts(path.read_text(encoding="utf-8"), whole))
    pins.complete(load(path), workspace)
    write_mixtures(workspace)
    return Path(workspace) / "dvc.yaml"


def _with_parts(text: str, whole: Mapping[str, Any]) -> str:
    """Return the text of params.yaml with the derived parts of `whole`; rewrite all of it where that fails."""
    import yaml
    from omegaconf import OmegaConf

    changed = text if text.endswith("\n") else f"{text}\n"
    for part in (*GROUPS, *PARTS):
        if part in GROUPS and re.search(rf"^{part}:", changed, re.MULTILINE):
            continue
        block = OmegaConf.to_yaml(OmegaConf.create({part: whole[part]}))
        own = re.search(rf"^{part}:.*\n(?:\n*[ \t].*\n)*", changed, re.MULTILINE)
        changed = changed[: own.start()] + block + changed[own.end() :] if own else changed + block
    try:
        kept = yaml.safe_load(changed) == whole
    except yaml.YAMLError:
        kept = False
    return changed if kept else OmegaConf.to_yaml(OmegaConf.create(dict(whole)))
