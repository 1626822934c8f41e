"""A model folder: `model.safetensors`, `config.json`, `tokenizer/`.

Data only: nothing in it is unpickled or run. Tied weights are stored once. The same model is the same bytes.
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
    from torch import nn

WEIGHTS = "model.safetensors"
CONFIG = "config.json"
TOKENIZER = "tokenizer"
FORMAT = 2  # of the weights; 1 had the rows of a fused query, key and value projection in another order


def save(folder: str | Path, config: Mapping[str, Any], module: nn.Module) -> None:
    """Write weights and config into a folder (see `storage.new_folder`); the tokenizer is the caller's to copy."""
    from safetensors.torch import save_file

    from lexmill.models.common.state import snapshot

    if config.get("kind") not in plugins.names("kinds"):
        raise ValueError(f"config['kind'] is {config.get('kind')!r}; it must be one of {plugins.names('kinds')}")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(snapshot(module), folder / WEIGHTS, metadata={"format": "pt"})
    write_json(folder / CONFIG, {**config, "format": FORMAT})


def read_config(folder: str | Path) -> dict[str, Any]:
    """The model's `config.json`, its format left out.

    Raises:
        UserError: the folder is no model folder, or another version's.
    """
    path = Path(folder) / CONFIG
    try:
        config = read_json(path)
    except FileNotFoundError:
        raise UserError("there is no model here: the file does not exist", path) from None
    except ValueError as error:
        raise UserError(f"not a model's config: {error}", path) from None
    if not isinstance(config, dict) or config.get("kind") not in plugins.names("kinds"):
        raise UserError(f"not a model's config: 'kind' must be one of {', '.join(plugins.names('kinds'))}", path)
    found = config.pop("format", 1)
    if found != FORMAT:
        raise UserError(f"a model of format {found}, this lexmill reads {FORMAT}: train it again", path)
    return config


def load(folder: str | Path) -> tuple[dict[str, Any], nn.Module]:
    """The config and the network, in eval mode, on the CPU.

    Raises:
        UserError: when a file is missing or broken, or the weights do not fit the config.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    from lexmill.models.common.state import load_weights

    config = read_config(folder)
    path = Path(folder) / WEIGHTS
    try:
        state = load_file(path)
    except FileNotFoundError:
        raise UserError("the model's weights are missing", path) from None
    except SafetensorError as error:
        raise UserError(f"the model's weights cannot be read: {error}", path) from None
    module = build(config)
    load_weights(module, state, f"the weights of {path}")
    return config, module.eval()
