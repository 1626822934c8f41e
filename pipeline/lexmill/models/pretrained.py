"""Reads a model's folder, ours or in Hugging Face format, as weights under the names here.

Weights are read from safetensors only, one file or several with an index; nothing is unpickled or run.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from lexmill.base import weight_files
from lexmill.base.errors import UserError, UserErrors
from lexmill.base.outside import parsing
from lexmill.base.shown import value_text
from lexmill.base.strict import build
from lexmill.models import families, family
from lexmill.models import folder as model_folder

if TYPE_CHECKING:
    from torch import Tensor

CONFIG, WEIGHTS = "config.json", weight_files.WEIGHTS
LOADS = ("lexmill.models.{family}.hugging_face",)  # by name, see lexmill.base.code
_UNDER_HEAD = "encoder."  # prefix in a model with a head
_INSIDE = "network."  # prefix in a network mixed with n-grams, or read in both directions
_HEAD, _SPANS = "head.", "qa_outputs."  # prefixes of a head that points at spans, here and there


@dataclass(frozen=True)
class Pretrained:
    """A model as found, without a head, but for one that points at spans.

    Attributes:
        family, shape: as in params.yaml, without the sizes that may differ.
        vocab_size: rows of the embedding, possibly more than the tokenizer has entries.
        state: the weights.
        ours: whether the folder is a model folder of lexmill.
        span_head: the weights of a head that points at spans, as `models.common.span_head` names them; {}: none.
    """

    family: str
    shape: dict[str, Any]
    vocab_size: int
    state: dict[str, Tensor]
    ours: bool
    span_head: dict[str, Tensor] = field(default_factory=dict)


def mapping(name: str) -> ModuleType:
    """Return the module with a family's names in Hugging Face format.

    Raises:
        UserError: `transformers` has no such model.
    """
    if not family(name).model_types:
        raise UserError(f"a model of family '{name}' has no counterpart in transformers")
    return importlib.import_module(f"lexmill.models.{name}.hugging_face")


def _family_of(config: Mapping[str, Any], folder: Path, wanted: str) -> str:
    """Return the family of a config.json's model_type: of several the wanted one, or the last."""
    found = config.get("model_type")
    known = [name for name in families() if found in family(name).model_types]
    if not known:
        types = {kind: None for name in families() for kind in family(name).model_types}
        raise UserError(f"model_type {value_text(found)} cannot be read; one of: {', '.join(types)}", folder / CONFIG)
    return wanted if wanted in known else known[-1]


def read(folder: str | Path, wanted: str = "") -> Pretrained:
    """Read a folder; `wanted` is the family that it is read as, where several have its model_type.

    Raises:
        UserError: it holds no model, or one that is not computed here; names the folder and the key.
    """
    folder = Path(folder)
    name, shape, ours = read_shape(folder, wanted)
    config, state = model_folder.read_mapping(folder / CONFIG), tensors(folder)
    if ours:
        heads = {key: value for key, value in state.items() if config.get("spans") and key.startswith(_HEAD)}
        if any(config.get(key) for key in ("labels", "tags", "pretraining", "reward", "embedding")) or heads:
            state = {
                key.removeprefix(_UNDER_HEAD): value for key, value in state.items() if key.startswith(_UNDER_HEAD)
            }
        # A network that is read in both directions; of a mixture the n-grams stay behind.
        if "mixture" in config or (family(name).both_directions and any(key.startswith(_INSIDE) for key in state)):
            state = {key.removeprefix(_INSIDE): value for key, value in state.items() if key.startswith(_INSIDE)}
        return Pretrained(name, shape, int(config["vocab_size"]), state, True, heads)
    heads = {f"{_HEAD}{key[len(_SPANS) :]}": value for key, value in state.items() if key.startswith(_SPANS)}
    with parsing("its weights do not fit its config.json", folder):
        try:
            state = mapping(name).read_state(shape, state)
        except UserError as error:
            raise UserError(f"{error}", None if error.file else folder) from None
        rows = state.get("embedding.weight")
        size = len(rows) if rows is not None else config.get("vocab_size")
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise UserError(f"vocab_size is {size!r}, not a number of tokens", folder / CONFIG)
    return Pretrained(name, shape, size, state, False, heads)


def read_shape(folder: Path, wanted: str = "") -> tuple[str, dict[str, Any], bool]:
    """Return family, shape and whether the folder is lexmill's, from config.json alone; see `read`."""
    config = model_folder.read_mapping(folder / CONFIG)
    if "model_type" not in config:
        config = model_folder.read_config(folder)
        model_folder.check_sizes(config, folder)
        free = family(config["family"]).free
        return config["family"], {key: value for key, value in config["shape"].items() if key not in free}, True
    name = _family_of(config, folder, wanted)
    try:
        shape: dict[str, Any] = mapping(name).read_shape(config)
    except UserError as error:
        raise UserError(f"{error}", None if error.file else folder) from None
    errors: list[str] = []
    build(family(name).shape, shape, errors)
    if errors:
        raise UserErrors([UserError(error, folder / CONFIG) for error in errors])
    return name, shape, False


def tensors(folder: Path) -> dict[str, Tensor]:
    """Return all tensors of `model.safetensors`, or of the files in its index.

    Raises:
        UserError: they are missing or damaged, or there are only pickled ones.
    """
    found: dict[str, Tensor] = {}
    for path in weight_files.weight_files(folder):
        found |= model_folder.read_tensors(path)
    return found
