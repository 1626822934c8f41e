"""What a process reads from a checkpoint: of a sharded model, each rank its own part."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lexmill.models.common.state import weights
from lexmill.training.checkpoints import Saved

Named = dict[str, Tensor]


def network_states(saved: Saved, module: nn.Module) -> dict[str, Named]:
    """The weights, and all else in the checkpoint that has their names (best, averaged ...), by file."""
    own = weights(module)
    return {
        name: {key: reader.like(key, own[key]) for key in reader.names()}
        for name, reader in saved.files.items()
        if name not in ("optimizer", "random")
    }


def optimizer_state(saved: Saved, module: nn.Module) -> Named:
    """The optimizer's state, `<parameter>/<key>` placed like the parameter if of its shape; none before step 1."""
    if "optimizer" not in saved.files:
        return {}
    own, reader = weights(module), saved.files["optimizer"]
    found = {}
    for path in reader.names():
        parameter, shape = own.get(path.rpartition("/")[0]), reader.shape(path)
        alike = parameter is not None and tuple(parameter.shape) == shape
        template = parameter if alike and parameter is not None else torch.empty(shape, device="meta")
        found[path] = reader.like(path, template)
    return found
