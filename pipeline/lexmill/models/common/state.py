"""A network's weights as named tensors, tied ones once."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from lexmill.base.errors import UserError


def weights(module: nn.Module) -> dict[str, Tensor]:
    """Return parameters and persistent buffers by name, not copied; a tied tensor only under its first name."""
    parameters = dict(module.named_parameters())  # tied tensors come once
    state = module.state_dict()
    buffers = {name for name, _ in module.named_buffers()}
    return {name: value.detach() for name, value in state.items() if name in parameters or name in buffers}


def snapshot(module: nn.Module) -> dict[str, Tensor]:
    """Return a copy of `weights` in main memory."""
    return {name: value.to("cpu", copy=True).contiguous() for name, value in weights(module).items()}


@torch.no_grad()
def load_weights(module: nn.Module, state: Mapping[str, Tensor], origin: str = "the weights") -> None:
    """Copy `state` into the module; raises as `check_weights`."""
    check_weights(module, state, origin)
    for name, value in weights(module).items():
        value.copy_(state[name])


def check_weights(module: nn.Module, state: Mapping[str, Tensor], origin: str = "the weights") -> None:
    """Raise `UserError` unless `state` has the module's names and shapes; names the first few that differ."""
    own = weights(module)
    errors = [f"'{name}' is missing" for name in own if name not in state]
    errors += [f"'{name}' is unknown" for name in state if name not in own]
    errors += [
        f"'{name}' is {tuple(state[name].shape)}, the model has {tuple(value.shape)}"
        for name, value in own.items()
        if name in state and state[name].shape != value.shape
    ]
    if errors:
        more = f" and {len(errors) - 5} more" if len(errors) > 5 else ""
        raise UserError(f"{origin} do not fit the model: {'; '.join(errors[:5])}{more}")


def average(snapshots: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Return the mean of several snapshots, summed in float64; integer buffers come from the last one."""
    assert snapshots, "there is nothing to average"
    mean = {}
    for name, last in snapshots[-1].items():
        floating = last.is_floating_point()
        mean[name] = torch.stack([one[name].double() for one in snapshots]).mean(0).to(last.dtype) if floating else last
    return mean
