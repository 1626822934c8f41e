"""Optimizers from params, and their state as named tensors."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from lexmill.errors import UserError
from lexmill.params import AdamW, Optimizer


def build(module: nn.Module, settings: Optimizer) -> torch.optim.Optimizer:
    """AdamW; weight decay only on matrices (2 or more axes), a tied parameter once.

    The fused kernel is used where the parameters are float32: one pass over the weights.
    """
    assert isinstance(settings, AdamW)
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": settings.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=settings.lr,
        betas=(settings.beta1, settings.beta2),
        eps=settings.eps,
        fused=True,
    )


def state_tensors(module: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's state as `<parameter>/<key>` -> tensor in main memory, copied."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in module.named_parameters()}
    return {
        f"{names[parameter]}/{key}": value.detach().to("cpu", copy=True).contiguous()
        for parameter, state in optimizer.state.items()
        for key, value in state.items()
    }


def load_state_tensors(module: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put back what `state_tensors` gave; raises `UserError` when it belongs to other parameters."""
    parameters = dict(module.named_parameters())
    wanted = {name for name, parameter in parameters.items() if parameter.requires_grad}
    found: dict[str, dict[str, Tensor]] = {}
    for path, value in tensors.items():
        name, _, key = path.rpartition("/")
        found.setdefault(name, {})[key] = value
    if set(found) != wanted:
        odd = sorted(set(found) ^ wanted)[:5]
        raise UserError(f"the optimizer's state does not fit the model: {', '.join(odd)}")
    for name, state in found.items():
        parameter = parameters[name]
        optimizer.state[parameter] = {
            # The fused kernel wants its step count beside the parameter; moments have the parameter's shape.
            key: value.to(parameter.device, copy=True)
            for key, value in state.items()
        }
