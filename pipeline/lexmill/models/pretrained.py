"""A model's folder, ours or in Hugging Face format, as weights under the names here.

Weights are read as safetensors only, in one file or several with an index; nothing is unpickled or run.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from lexmill.base.errors import UserError
from lexmill.base.storage import read_json
from lexmill.models import build, families, family
from lexmill.models import folder as model_folder
from lexmill.models.declaration import Role

if TYPE_CHECKING:
    from torch import Tensor

    from lexmill.models.common.heads import PooledClassifier

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"


@dataclass(frozen=True)
class Pretrained:
    """A language model as it was found.

    Attributes:
        family, shape: as in params.yaml; what the family leaves free (dropout) is left out.
        vocab_size: rows of the embedding, which may be more than the tokenizer has entries.
        state: the weights.
        ours: whether the folder is a model folder of lexmill.
    """

    family: str
    shape: dict[str, Any]
    vocab_size: int
    state: dict[str, Tensor]
    ours: bool


def mapping(name: str) -> ModuleType:
    """The module that knows a family's names in Hugging Face format.

    Raises:
        UserError: `transformers` has no such model.
    """
    if not family(name).model_types:
        raise UserError(f"a model of family '{name}' has no counterpart in transformers")
    return importlib.import_module(f"lexmill.models.{name}.hugging_face")


def classifier(
    checkpoint: str | Path, labels: Sequence[str], dropout: float
) -> tuple[PooledClassifier, dict[str, Any]]:
    """A classifier whose encoder is a pretrained one and whose head is new (drawn from torch's random state).

    Returns:
        The module, and the part of a model folder's config that builds it again.

    Raises:
        UserError: the checkpoint is missing, no encoder, or lacks a weight of it.
    """
    from lexmill.models.common.heads import PooledClassifier
    from lexmill.models.common.state import load_weights

    folder = Path(checkpoint)
    described = _config(folder)
    name = _family_of(described, "encoder", folder)
    module = mapping(name)
    shape = module.read_shape(described)
    if "vocab_size" not in described:
        raise UserError("config.json has no 'vocab_size'", folder / CONFIG)
    config = {"family": name, "shape": shape, "vocab_size": int(described["vocab_size"])}
    encoder = build(config)
    load_weights(encoder, module.read_state(shape, tensors(folder)), f"{folder}: the encoder's weights")
    head = {"labels": list(labels), "dropout": dropout}
    return PooledClassifier(encoder, len(labels), dropout), config | head


def _family_of(config: Mapping[str, Any], role: Role, folder: Path) -> str:
    """The family of a role that computes a config.json's model_type."""
    known = {kind: name for name in families(role) for kind in family(name).model_types}
    found = config.get("model_type")
    if not isinstance(found, str) or found not in known:
        raise UserError(f"model_type {found!r} cannot be read; one of: {', '.join(known)}", folder / CONFIG)
    return known[found]


def read(folder: str | Path) -> Pretrained:
    """Read a folder.

    Raises:
        UserError: it holds no language model, or one that is not computed here; names the folder and the key.
    """
    folder = Path(folder)
    name, shape, ours = read_shape(folder)
    if ours:
        return Pretrained(name, shape, int(model_folder.read_config(folder)["vocab_size"]), tensors(folder), True)
    try:
        state = mapping(name).read_state(shape, tensors(folder))
    except UserError as error:
        raise UserError(f"{error}", None if error.file else folder) from None
    return Pretrained(name, shape, len(state["embedding.weight"]), state, False)


def read_shape(folder: Path) -> tuple[str, dict[str, Any], bool]:
    """Family, shape and whether the folder is one of lexmill, by its config.json alone; raises as `read`."""
    config = _config(folder)
    if "model_type" not in config:
        config = model_folder.read_config(folder)
        if config["kind"] != "language_model":
            raise UserError(f"a {config['kind']} is no language model", folder / CONFIG)
        free = family(config["family"]).free
        return config["family"], {key: value for key, value in config["shape"].items() if key not in free}, True
    name = _family_of(config, "causal", folder)
    try:
        return name, mapping(name).read_shape(config), False
    except UserError as error:
        raise UserError(f"{error}", None if error.file else folder) from None


def _config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    try:
        config = read_json(path)
    except FileNotFoundError:
        raise UserError("there is no model here: the file does not exist", path) from None
    except ValueError as error:
        raise UserError(f"not a model's config: {error}", path) from None
    if not isinstance(config, dict):
        raise UserError("not a model's config", path)
    return config


def tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of `model.safetensors`, or of the files that its index names.

    Raises:
        UserError: they are missing or damaged, or there are only pickled ones.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    names = [WEIGHTS]
    if not (folder / WEIGHTS).is_file():
        if not (folder / INDEX).is_file():
            pickled = sorted(path.name for path in folder.glob("*.bin"))
            why = "; {} is a pickle, which can run code and is never read: convert it once"
            raise UserError(f"there are no safetensors weights here{why.format(pickled[0]) if pickled else ''}", folder)
        names = sorted(set(_weight_map(folder / INDEX).values()))
    found: dict[str, Tensor] = {}
    for name in names:
        try:
            found |= load_file(folder / name)
        except FileNotFoundError:
            raise UserError(f"{name}, which the index of the weights names, is missing", folder) from None
        except (SafetensorError, OSError) as error:
            raise UserError(f"the weights cannot be read: {error}", folder / name) from None
    return found


def _weight_map(path: Path) -> Mapping[str, str]:
    try:
        found = read_json(path).get("weight_map")
    except (ValueError, AttributeError) as error:
        raise UserError(f"not an index of weights: {error}", path) from None
    if not isinstance(found, dict) or not all(isinstance(name, str) and "/" not in name for name in found.values()):
        raise UserError("not an index of weights: weight_map must give a file name for each tensor", path)
    return found
