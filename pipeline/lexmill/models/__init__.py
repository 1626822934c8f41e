"""Networks as plain torch modules: `common/` holds the shared blocks, and each architecture is a folder of its own.

Importing this package, or the `shape` of a family, loads no torch.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lexmill.models.declaration import Family, families, family

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Family", "build", "families", "family"]


def build(config: Mapping[str, Any]) -> nn.Module:
    """A network with fresh weights from a model folder's `config.json` (at least family, shape, vocab_size).

    Raises:
        UserError: for an unknown family.
    """
    family(config.get("family"))
    module: nn.Module = importlib.import_module(f"lexmill.models.{config['family']}").build(config)
    return module
