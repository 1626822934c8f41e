"""A model folder: `model.safetensors`, `config.json`, `tokenizer/`.

Data only: nothing in it is unpickled or run. Tied weights are stored once. The same model gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexmill.base import plugins
from lexmill.base.errors import UserError
from lexmill.base.storage import read_json, write_json
from lexmill.models import build

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
    if config.get("kind") not in plugins.names("kinds"):
        raise UserError(f"not a model's config: 'kind' must be one of {', '.join(plugins.names('kinds'))}", path)
    found = config.pop("format", 1)
    if found != FORMAT:
        raise UserError(f"a model of format {found}, this lexmill reads {FORMAT}: train it again", path)
    return config


def read_mapping(path: Path) -> dict[str, Any]:
    """Return a config.json.

    Raises:
        UserError: it does not exist or is not a JSON object.
    """
    try:
        config = read_json(path)
    except FileNotFoundError:
        raise UserError("there is no model here: the file does not exist", path) from None
    except ValueError as error:
        raise UserError(f"not a model's config: {error}", path) from None
    if not isinstance(config, dict):
        raise UserError("not a model's config", path)
    return config


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file.

    Raises:
        UserError: it is missing or damaged.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except FileNotFoundError:
        raise UserError("the model's weights are missing", path) from None
    except (SafetensorError, OSError) as error:
        raise UserError(f"the model's weights cannot be read: {error}", path) from None


def load(folder: str | Path) -> tuple[dict[str, Any], nn.Module]:
    """Return the config and the network, in eval mode, on the CPU.

    Raises:
        UserError: a file is missing or broken, or the weights do not fit the config.
    """
    from lexmill.models.common.state import load_weights

    config, path = read_config(folder), Path(folder) / WEIGHTS
    state = read_tensors(path)
    module = build(config)
    load_weights(module, state, f"the weights of {path}")
    return config, module.eval()
