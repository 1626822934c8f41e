"""A model folder: `model.safetensors`, `config.json`, `tokenizer/`.

Data only: nothing in it is unpickled or run. Tied weights are stored once. The same model gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexmill.base import plugins
from lexmill.base.errors import UserError, UserErrors
from lexmill.base.outside import parsing, read_json_object
from lexmill.base.storage import write_json
from lexmill.models import build
from lexmill.models.declaration import config_errors

if TYPE_CHECKING:
    from torch import Tensor, nn

WEIGHTS = "model.safetensors"
CONFIG = "config.json"
TOKENIZER = "tokenizer"
FORMAT = 2  # of the weights; 1 ordered the rows of a fused query, key and value projection differently


def save(folder: str | Path, config: Mapping[str, Any], module: nn.Module) -> None:
    """Write weights and config into a folder (see `storage.new_folder`); the caller copies the tokenizer."""
    from safetensors.torch import save_file

    from lexmill.models.common.state import snapshot

    if config.get("kind") not in plugins.names("kinds"):
        raise ValueError(f"config['kind'] is {config.get('kind')!r}; it must be one of {plugins.names('kinds')}")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(snapshot(module), folder / WEIGHTS, metadata={"format": "pt"})
    write_json(folder / CONFIG, {**config, "format": FORMAT})


def read_config(folder: str | Path) -> dict[str, Any]:
    """Return the model's `config.json` without its format.

    Raises:
        UserError: the folder is not a model folder, or has another format.
    """
    path = Path(folder) / CONFIG
    config = read_mapping(path)
    if str(config.get("kind")) not in plugins.names("kinds"):
        raise UserError(f"not a model's config: 'kind' must be one of {', '.join(plugins.names('kinds'))}", path)
    found = config.pop("format", 1)
    if found != FORMAT:
        raise UserError(f"a model of format {str(found)[:20]}, this lexmill reads {FORMAT}: train it again", path)
    return config


def check_sizes(config: Mapping[str, Any], folder: Path) -> None:
    """Raise `UserErrors` for wrong sizes in a model folder's config."""
    errors = config_errors(config)
    if errors:
        raise UserErrors([UserError(error, folder / CONFIG) for error in errors])


def read_mapping(path: Path) -> dict[str, Any]:
    """Return a config.json.

    Raises:
        UserError: it does not exist or is not a JSON object.
    """
    if not path.is_file():
        raise UserError("there is no model here: the file does not exist", path)
    try:
        return read_json_object(path)
    except UserError as error:
        raise UserError(f"not a model's config: {error.message}", path, error.line) from None


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file.

    Raises:
        UserError: it is missing or damaged.
    """
    from safetensors.torch import load_file

    if not path.is_file():
        raise UserError("the model's weights are missing", path)
    with parsing("the model's weights cannot be read", path):
        found: dict[str, Tensor] = load_file(path)
    return found


def load(folder: str | Path) -> tuple[dict[str, Any], nn.Module]:
    """Return the config and the network, in eval mode, on the CPU.

    Raises:
        UserError: a file is missing or broken, or the weights do not fit the config.
    """
    import torch

    from lexmill.models.common.state import check_weights, load_weights
    from lexmill.models.common.undrawn import Undrawn

    config, path = read_config(folder), Path(folder) / WEIGHTS
    check_sizes(config, Path(folder))
    state = read_tensors(path)
    with Undrawn():
        with torch.device("meta"):  # without memory: sizes that do not fit the file are refused before it is taken
            check_weights(build(config), state, f"the weights of {path}")
        module = build(config)
    load_weights(module, state, f"the weights of {path}")
    return config, module.eval()
