"""conf/ composed into params.yaml, by Hydra: the same bytes that `dvc exp run` writes; and its mixtures into dvc.yaml.

`dvc repro` reads params.yaml as it stands and never composes; `dvc exp run` composes the defaults and its `-S`
choices again before it runs, and so undoes what was edited by hand. `lexmill.config.undoing` tells what it would undo.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from lexmill.base.errors import UserError, UserErrors
from lexmill.base.storage import write_text
from lexmill.base.strict import flatten, nearest
from lexmill.config.mixtures import write_mixtures
from lexmill.corpora.fetching import pins
from lexmill.params import load, parse, read_yaml

flat = flatten  # the name that commands/search imports


def compose(overrides: Sequence[str] = (), workspace: str | Path = ".") -> str:
    """Compose conf/config.yaml with Hydra overrides and return it as the YAML text of params.yaml.

    Args:
        overrides: Hydra's grammar, `experiment=full`, `language_model@language_models.gpt=gpt_small`,
            `language_models.gpt.length='2000 steps'`.
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
    """Write what follows from params.yaml as it stands: its mixtures' stages in dvc.yaml, its sources' lock entries.

    Raises:
        UserError: overrides were given, which could change nothing.
        UserErrors: params.yaml has faults.
    """
    if overrides:
        raise UserError(f"--keep leaves params.yaml as it is, so {' '.join(overrides)} would change nothing")
    pins.complete(load(Path(workspace) / "params.yaml"), workspace)
    write_mixtures(workspace)
    return Path(workspace) / "dvc.yaml"
