"""Networks as plain torch modules: shared blocks in `common/`, one folder for each architecture.

Importing this package, or the `shape` of a family, loads no torch.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lexmill.base.errors import UserErrors
from lexmill.models.declaration import Family, config_errors, families, family

if TYPE_CHECKING:
    from torch import nn

LOADS = ("lexmill.models.{family}", "lexmill.models.{family}.model")  # by name, see lexmill.base.code

__all__ = ["Family", "build", "families", "family"]


def build(config: Mapping[str, Any]) -> nn.Module:
    """Return a network with fresh weights from a model folder's `config.json` (at least family, shape, vocab_size).

    A config with `labels` describes a network under a head that pools its states, one with `reward` a causal network
    under a reward.

    Raises:
        UserErrors: an unknown family, or wrong sizes.
    """
    errors = config_errors(config)
    if errors:
        raise UserErrors(errors)
    declared = family(config["family"])
    network = getattr(importlib.import_module(f"lexmill.models.{config['family']}.model"), declared.network)
    module: nn.Module = network(declared.shape(**config["shape"]), config["vocab_size"])
    if "labels" in config:
        from lexmill.models.common.heads import BagClassifier, NearestNeighbours, PooledClassifier

        if "neighbours" in config:
            many = (config["neighbours"], config["train_texts"])
            return NearestNeighbours(module, len(config["labels"]), config.get("pooling", "mean"), *many)
        headed = BagClassifier if declared.role == "bag" else PooledClassifier
        return headed(module, len(config["labels"]), config["dropout"], config.get("pooling", "mean"))
    if config.get("reward"):
        from lexmill.models.common.heads import RewardModel

        return RewardModel(module)
    return module
