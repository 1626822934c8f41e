"""conf/ composed into params.yaml, by Hydra: the same bytes that `dvc exp run` writes; and its mixtures into dvc.yaml.

`${derived:PART}` in conf/ stands for what follows from the models (`lexmill.params.derived`): `register` teaches it to
OmegaConf, here and, by a plugin, in `dvc exp run`.

`dvc repro` reads params.yaml as it stands and never composes; `dvc exp run` composes the defaults and its `-S`
choices again before it runs, and so undoes what was edited by hand. `lexmill.config.undoing` tells what it would undo.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lexmill.base.errors import UserError, UserErrors
from lexmill.base.storage import write_text
from lexmill.base.strict import flatten, nearest
from lexmill.config.mixtures import write_mixtures
from lexmill.corpora.fetching import pins
from lexmill.params import load, parse, read_yaml
from lexmill.params.derived import PARTS, derive


def compose(overrides: Sequence[str] = (), workspace: str | Path = ".") -> str:
    """Compose conf/config.yaml with Hydra overrides and return it as the YAML text of params.yaml.

    Args:
        overrides: Hydra's grammar, `experiment=full`, `model@models.gpt=gpt_small`,
            `models.gpt.recipe.length='2000 steps'`.
        workspace: the folder that holds conf/.

    Raises:
        UserError: an override that Hydra cannot apply, with the nearest that it can.
        UserErrors: files of conf/ that are no YAML, or faults of the composed params.
    """
    import yaml
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    register()
    folder = Path(workspace).resolve() / "conf"
    if not (folder / "config.yaml").is_file():
        raise UserError("there is no conf/config.yaml here; run this in the project's folder", folder)
    try:
        with initialize_config_dir(str(folder), version_base=None):
            config = hydra_compose(config_name="config", overrides=list(overrides))
        OmegaConf.resolve(config)
        text = OmegaConf.to_yaml(config)
    except (HydraException, OmegaConfBaseException) as error:
        cause = str(error).strip().split("\n")[0].rstrip(".")
        hint = _hint(cause, overrides, folder)
        raise UserError(
            f"conf/ cannot be composed with {' '.join(overrides) or 'its defaults'}: {cause}{hint}"
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError):
        faults = list(_file_faults(folder))
        if not faults:
            raise
        raise UserErrors(faults) from None
    parse(OmegaConf.to_container(config), "the composed params")
    return text


def register() -> None:
    """Let `${derived:PART}` in conf/ give what follows from the models."""
    from omegaconf import DictConfig, OmegaConf

    def derived(part: str, *, _root_: DictConfig) -> DictConfig:
        groups = ("models", "tokenizers", "checkpoints", "mixtures")
        plain: dict[str, Any] = {
            group: OmegaConf.to_container(_root_[group], resolve=True) for group in groups if group in _root_
        }
        return OmegaConf.create(derive(plain)[part])

    OmegaConf.register_new_resolver("derived", derived, replace=True)


def _file_faults(folder: Path) -> Iterator[UserError]:
    for file in sorted(folder.rglob("*.yaml")):
        try:
            read_yaml(file)
        except UserError as fault:
            yield fault


def _hint(cause: str, overrides: Sequence[str], folder: Path) -> str:
    """What was probably meant, after Hydra's `Could not find 'group/choice'` or `Could not override 'a.b.c'`."""
    bare = [override for override in overrides if "=" not in override and not override.startswith("~")]
    if bare:
        return f"; give it as {bare[0]}=VALUE"
    if found := re.search(r"Could not find '(.+)/(.+?)'", cause):
        group, choice = found.groups()
        return nearest(choice, [file.stem for file in (folder / group).glob("*.yaml")])
    if found := re.search(r"Could not override '(.+?)'", cause):
        if meant := _packaged(found[1], overrides, folder):
            return f"; write {' or '.join(meant)}"
        known = flatten(read_yaml(folder.parent / "params.yaml")) if (folder.parent / "params.yaml").is_file() else {}
        paths = {key.rsplit(".", up)[0] for key in known for up in range(key.count(".") + 1)}
        hint = nearest(found[1], paths)
        return hint if hint.startswith(", did") else "; `lexmill params` lists the keys"
    return ""


def _packaged(name: str, overrides: Sequence[str], folder: Path) -> list[str]:
    """What a choice may mean that was given without its package: by its group, or by the entry it is for."""
    choice = next((value for key, _, value in (one.partition("=") for one in overrides) if key == name), "")
    defaults = [key for one in read_yaml(folder / "config.yaml")["defaults"] if isinstance(one, dict) for key in one]
    keys = [key for key in defaults if "@" in key and name in (key.partition("@")[0], key.rpartition(".")[2])]
    return [f"{key}={choice}" for key in keys]


def write_params(overrides: Sequence[str] = (), workspace: str | Path = ".") -> Path:
    """Compose and write params.yaml and what follows from it: the stages of its mixtures, its sources' lock entries.

    Nothing is written when the choices have a fault.
    """
    path = Path(workspace) / "params.yaml"
    write_text(path, compose(overrides, workspace))
    write_mixtures(workspace)
    pins.complete(load(path), workspace)
    return path


def write_stages(overrides: Sequence[str] = (), workspace: str | Path = ".") -> Path:
    """Write what follows from params.yaml as it stands: its derived parts, stages of mixtures, entries of sources.

    All else in the file stays as it is written, comments included.

    Raises:
        UserError: overrides were given, which could change nothing.
        UserErrors: params.yaml has faults.
    """
    if overrides:
        raise UserError(f"--keep leaves params.yaml as it is, so {' '.join(overrides)} would change nothing")
    path = Path(workspace) / "params.yaml"
    data = read_yaml(path)
    if isinstance(data, dict):
        kept = {key: value for key, value in data.items() if key not in PARTS}
        parse(kept, path)
        if (whole := {**kept, **derive(kept)}) != data:
            write_text(path, _with_parts(path.read_text(encoding="utf-8"), whole))
    pins.complete(load(path), workspace)
    write_mixtures(workspace)
    return Path(workspace) / "dvc.yaml"


def _with_parts(text: str, whole: Mapping[str, Any]) -> str:
    """The text of params.yaml with the derived parts of `whole` in place of its own; anew where it cannot be cut."""
    import yaml
    from omegaconf import OmegaConf

    changed = text if text.endswith("\n") else f"{text}\n"
    for part in PARTS:
        block = OmegaConf.to_yaml(OmegaConf.create({part: whole[part]}))
        own = re.compile(rf"^{part}:.*\n(?:\n*[ \t].*\n)*", re.MULTILINE)
        found = own.search(changed)
        changed = changed[: found.start()] + block + changed[found.end() :] if found else changed + block
    try:
        kept = yaml.safe_load(changed) == whole
    except yaml.YAMLError:
        kept = False
    return changed if kept else OmegaConf.to_yaml(OmegaConf.create(dict(whole)))
