"""Networks as plain torch modules: `common/` holds the shared blocks, and each architecture is a folder of its own.

A family's folder is a package with `build(config) -> nn.Module`; it is found by its name, so that a new family is
a new folder and no other file changes.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexmill.base.errors import UserError
from lexmill.base.strict import nearest

if TYPE_CHECKING:
    from torch import nn

LOADS = ("lexmill.models.{family}",)  # by name, see lexmill.base.code


def families() -> list[str]:
    """The names of the architectures at hand."""
    here = Path(__file__).parent
    return sorted(path.parent.name for path in here.glob("*/__init__.py") if path.parent.name != "common")


def build(config: Mapping[str, Any]) -> nn.Module:
    """A network with fresh weights from a model folder's `config.json` (at least family, shape, vocab_size).

    Raises:
        UserError: for an unknown family.
    """
    family = config.get("family")
    if not isinstance(family, str) or family not in families():
        raise UserError(f"there is no model family {family!r}{nearest(str(family), families())}")
    module: nn.Module = importlib.import_module(f"lexmill.models.{family}").build(config)
    return module
