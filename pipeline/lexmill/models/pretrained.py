"""Reads a model's folder, ours or in Hugging Face format, as weights under the names here.

Weights are read from safetensors only, one file or several with an index; nothing is unpickled or run.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from lexmill.base.errors import UserError
from lexmill.base.storage import read_json
from lexmill.models import families, family
from lexmill.models import folder as model_folder

if TYPE_CHECKING:
    from torch import Tensor

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
LOADS = ("lexmill.models.{family}.hugging_face",)  # by name, see lexmill.base.code
_UNDER_HEAD = "encoder."  # prefix in a model with a pooled head


@dataclass(frozen=True)
class Pretrained:
    """A model as found, without a head.

    Attributes:
        family, shape: as in params.yaml, without the sizes that may differ.
        vocab_size: rows of the embedding, possibly more than the tokenizer has entries.
        state: the weights.
        ours: whether the folder is a model folder of lexmill.
    """

    family: str
    shape: dict[str, Any]
    vocab_size: int
    state: dict[str, Tensor]
    ours: bool


def mapping(name: str) -> ModuleType:
    """Return the module with a family's names in Hugging Face format.

    Raises:
        UserError: `transformers` has no such model.
    """
    if not family(name).model_types:
        raise UserError(f"a model of family '{name}' has no counterpart in transformers")
    return importlib.import_module(f"lexmill.models.{name}.hugging_face")


def _family_of(config: Mapping[str, Any], folder: Path) -> str:
    """Return the family of a config.json's model_type."""
    known = {kind: name for name in families() for kind in family(name).model_types}
    found = config.get("model_type")
    if found not in known:
        raise UserError(f"model_type {found!r} cannot be read; one of: {', '.join(known)}", folder / CONFIG)
    return known[found]


def read(folder: str | Path) -> Pretrained:
    """Read a folder.

    Raises:
        UserError: it holds no model, or one that is not computed here; names the folder and the key.
    """
    folder = Path(folder)
    name, shape, ours = read_shape(folder)
    config, state = model_folder.read_mapping(folder / CONFIG), tensors(folder)
    if ours:
        if "labels" in config:
            state = {
                key.removeprefix(_UNDER_HEAD): value for key, value in state.items() if key.startswith(_UNDER_HEAD)
            }
        return Pretrained(name, shape, int(config["vocab_size"]), state, True)
    try:
        state = mapping(name).read_state(shape, state)
    except UserError as error:
        raise UserError(f"{error}", None if error.file else folder) from None
    rows = state.get("embedding.weight")
    return Pretrained(name, shape, int(config["vocab_size"]) if rows is None else len(rows), state, False)


def read_shape(folder: Path) -> tuple[str, dict[str, Any], bool]:
    """Return family, shape and whether the folder is lexmill's, from config.json alone; raises like `read`."""
    config = model_folder.read_mapping(folder / CONFIG)
    if "model_type" not in config:
        config = model_folder.read_config(folder)
        free = family(config["family"]).free
        return config["family"], {key: value for key, value in config["shape"].items() if key not in free}, True
    name = _family_of(config, folder)
    try:
        return name, mapping(name).read_shape(config), False
    except UserError as error:
        raise UserError(f"{error}", None if error.file else folder) from None


def tensors(folder: Path) -> dict[str, Tensor]:
    """Return all tensors of `model.safetensors`, or of the files in its index.

    Raises:
        UserError: they are missing or damaged, or there are only pickled ones.
    """
    names = [WEIGHTS]
    if not (folder / WEIGHTS).is_file():
        if not (folder / INDEX).is_file():
            pickled = sorted(path.name for path in folder.glob("*.bin"))
            why = "; {} is a pickle, which can run code and is never read: convert it once"
            raise UserError(f"there are no safetensors weights here{why.format(pickled[0]) if pickled else ''}", folder)
        names = sorted(set(_weight_map(folder / INDEX).values()))
    found: dict[str, Tensor] = {}
    for name in names:
        if not (folder / name).is_file():
            raise UserError(f"{name}, which the index of the weights names, is missing", folder)
        found |= model_folder.read_tensors(folder / name)
    return found


def _weight_map(path: Path) -> Mapping[str, str]:
    try:
        found = read_json(path).get("weight_map")
    except (ValueError, AttributeError) as error:
        raise UserError(f"not an index of weights: {error}", path) from None
    if not isinstance(found, dict) or not all(isinstance(name, str) and "/" not in name for name in found.values()):
        raise UserError("not an index of weights: weight_map must give a file name for each tensor", path)
    return found
