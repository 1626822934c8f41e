"""A network's weights as named tensors, tied ones once."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from lexmill.base.errors import UserError


def weights(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers by name, not copied; a tied tensor stands under its first name only."""
    parameters = dict(module.named_parameters())  # tied tensors come once
    state = module.state_dict()
    buffers = {name for name, _ in module.named_buffers()}
    return {name: value.detach() for name, value in state.items() if name in parameters or name in buffers}


def snapshot(module: nn.Module) -> dict[str, Tensor]:
    """A copy of `weights` in main memory."""
    return {name: value.to("cpu", copy=True).contiguous() for name, value in weights(module).items()}


@torch.no_grad()
def load_weights(module: nn.Module, state: Mapping[str, Tensor], origin: str = "the weights") -> None:
    """Copy `state` into the module.

    Raises:
        UserError: when names or shapes differ, naming the first few.
    """
    own = weights(module)
    faults = [f"'{name}' is missing" for name in own if name not in state]
    faults += [f"'{name}' is unknown" for name in state if name not in own]
    faults += [
        f"'{name}' is {tuple(state[name].shape)}, the model has {tuple(value.shape)}"
        for name, value in own.items()
        if name in state and state[name].shape != value.shape
    ]
    if faults:
        more = f" and {len(faults) - 5} more" if len(faults) > 5 else ""
        raise UserError(f"{origin} do not fit the model: {'; '.join(faults[:5])}{more}")
    for name, value in own.items():
        value.copy_(state[name])


def average(snapshots: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of several snapshots, summed in float64; integer buffers come from the last one."""
    assert snapshots, "there is nothing to average"
    mean = {}
    for name, last in snapshots[-1].items():
        if last.is_floating_point():
            total = torch.stack([one[name].double() for one in snapshots]).mean(0)
            mean[name] = total.to(last.dtype)
        else:
            mean[name] = last
    return mean
