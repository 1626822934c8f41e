"""Optimizers from params, and their state as named tensors.

Weight decay acts on matrices (two or more axes, embeddings among them, as in GPT-2 and nanoGPT), never on biases and
norms; a tied parameter is one parameter. Fused kernels (one pass over the weights) are used where torch has them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from lexmill.base.errors import UserError
from lexmill.models.common.mixer import fused_layouts
from lexmill.params.optimizers import SGD, AdaDelta, AdaGrad, Adam, AdamW, Muon, Optimizer, RMSprop
from lexmill.training.muon import MuonOptimizer
from lexmill.training.task import Pace


class Optimizers:
    """One or several torch optimizers that together update a module once a step.

    Args:
        module: the module whose trained parameters they hold, each once.
        parts: the optimizers; their initial learning rates are the peaks.
    """

    def __init__(self, module: nn.Module, parts: list[torch.optim.Optimizer]) -> None:
        self.parts = parts
        self._names: dict[Tensor, str] = {parameter: name for name, parameter in module.named_parameters()}
        self._groups = [group for part in parts for group in part.param_groups]
        self._peaks: list[float] = [group["lr"] for group in self._groups]
        self._begins: list[int] = [group.pop("begins", 0) for group in self._groups]

    def parameters(self) -> list[Tensor]:
        """Return all trained parameters."""
        return [parameter for group in self._groups for parameter in group["params"]]

    def set_learning_rates(self, factor: float, step: int = 1) -> None:
        """Set each learning rate for a step (from 1): `factor` of its own peak, 0 before its parameters begin."""
        for group, peak, begins in zip(self._groups, self._peaks, self._begins, strict=True):
            group["lr"] = peak * factor if step > begins else 0.0

    def step(self) -> None:
        """Update the parameters by their gradients."""
        for part in self.parts:
            part.step()

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for part in self.parts:
            part.zero_grad(set_to_none=True)

    def named_state(self) -> dict[str, Tensor]:
        """Return the state as `<parameter>/<key>` -> tensor, not copied; sharded like its parameter."""
        return {
            f"{self._names[parameter]}/{key}": value.detach()
            for part in self.parts
            for parameter, state in part.state.items()
            for key, value in state.items()
        }

    def load_state_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore a copy of `named_state`, from any device; an empty one is the state before the first step.

        Raises:
            UserError: it belongs to other parameters.
        """
        found: dict[str, dict[str, Tensor]] = {}
        for path, value in tensors.items():
            name, _, key = path.rpartition("/")
            found.setdefault(name, {})[key] = value
        wanted = {self._names[parameter] for parameter in self.parameters()}
        odd = set(found) ^ wanted if found else set()
        if odd:
            raise UserError(f"the optimizer's state does not fit the model: {', '.join(sorted(odd)[:5])}")
        for part in self.parts:
            for group in part.param_groups:
                for parameter in group["params"]:
                    # Fused kernels want the step count beside the parameter, the others in main memory.
                    device = parameter.device
                    where = {"step": device if group.get("fused") else "cpu"}
                    state = found.get(self._names[parameter])
                    if state is not None:
                        part.state[parameter] = {k: v.to(where.get(k, device), copy=True) for k, v in state.items()}


def build(module: nn.Module, settings: Optimizer, pace: Callable[[str], Pace] = lambda _: Pace()) -> Optimizers:
    """Return the optimizers of `settings` over the module's trained parameters.

    Args:
        pace: of a parameter, by its name.

    Raises:
        UserError: Muon for a module that has no matrix in a stack of blocks, or whose parameters differ in pace.
    """
    named = [(name, parameter) for name, parameter in module.named_parameters() if parameter.requires_grad]
    paces = {parameter: pace(name) for name, parameter in named}
    if not isinstance(settings, Muon):
        return Optimizers(module, [_plain([parameter for _, parameter in named], settings, paces)])
    if len(set(paces.values())) > 1:
        raise UserError("optimizer muon: all parameters have one rate and begin at once; choose adamw")
    inside = _block_matrices(module)
    if not inside:
        raise UserError("optimizer muon: this model has no matrix in a stack of blocks; choose adamw")
    layouts = fused_layouts(module)
    s, matrices = settings, [(parameter, layouts.get(name, (1, 1))) for name, parameter in named if name in inside]
    muon = MuonOptimizer(matrices, lr=s.lr, momentum=s.momentum, weight_decay=s.weight_decay)
    betas = {"beta1": s.beta1, "beta2": s.beta2}
    rest = AdamW("adamw", lr=s.adamw_lr, eps=s.eps, weight_decay=s.weight_decay, **betas)
    others = [parameter for name, parameter in named if name not in inside]
    return Optimizers(module, [muon, _plain(others, rest, paces)] if others else [muon])


def _plain(
    parameters: list[nn.Parameter], settings: Optimizer, paces: Mapping[nn.Parameter, Pace]
) -> torch.optim.Optimizer:
    """Return a torch optimizer in groups: matrices, which decay, and all else, which does not; by pace.

    Kernels over many tensors need equal placement: tensors sharded differently are separate groups.
    """
    groups: dict[Any, dict[str, Any]] = {}
    for p in sorted(parameters, key=lambda p: p.ndim < 2):
        place = p.device_mesh if isinstance(p, DTensor) else None
        decay, pace = settings.weight_decay if p.ndim >= 2 else 0.0, paces[p]
        group = {"params": [], "weight_decay": decay, "lr": settings.lr * pace.rate, "begins": pace.begins}
        groups.setdefault((p.ndim >= 2, place, pace), group)["params"].append(p)
    made, s = list(groups.values()), settings
    if isinstance(s, SGD):
        return torch.optim.SGD(made, lr=s.lr, momentum=s.momentum, nesterov=s.nesterov, fused=True)
    if isinstance(s, AdaGrad):
        return torch.optim.Adagrad(made, lr=s.lr, eps=s.eps)
    if isinstance(s, AdaDelta):
        return torch.optim.Adadelta(made, lr=s.lr, rho=s.rho, eps=s.eps)
    if isinstance(s, RMSprop):
        return torch.optim.RMSprop(made, lr=s.lr, alpha=s.alpha, eps=s.eps, momentum=s.momentum)
    assert isinstance(s, Adam | AdamW)
    kind = torch.optim.Adam if isinstance(s, Adam) else torch.optim.AdamW
    return kind(made, lr=s.lr, betas=(s.beta1, s.beta2), eps=s.eps, fused=True)


def _block_matrices(module: nn.Module) -> set[str]:
    """Return the names of the trained matrices in a stack of blocks (`nn.ModuleList`), without embeddings."""
    stacks = [(path, child) for path, child in module.named_modules() if isinstance(child, nn.ModuleList)]
    return {
        f"{inner}.{name}"
        for path, stack in stacks
        for inner, block in stack.named_modules(prefix=path)
        if not isinstance(block, nn.Embedding)
        for name, parameter in block.named_parameters(recurse=False)
        if parameter.ndim == 2 and parameter.requires_grad
    }
