"""Shards a network over devices (FSDP2, tensor parallel), recomputes and compiles its blocks.

All of it acts on `module.blocks`, a list of equal layers, in the engine's own copy of the network. The order is
torchtitan's: matrix products are split first, then each block is compiled, recomputed and finally sharded.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import parallelize_module
from torch.utils.checkpoint import checkpoint

from lexmill.base.errors import UserError
from lexmill.compute.execution import Execution
from lexmill.models.common.state import weights
from lexmill.training.task import Task


class Objective(nn.Module):
    """The loss of a task as a module for DDP, which must see the forward pass to exchange gradients."""

    def __init__(self, task: Task, module: nn.Module) -> None:
        super().__init__()
        self.task, self.module = task, module

    def forward(self, batch: Mapping[str, Tensor] | None) -> tuple[Tensor, Tensor | int]:
        """Return (summed loss, number of targets); without a batch, zero targets that involve every parameter."""
        if batch is not None:
            return self.task.loss_sum(self.module, batch)
        return torch.stack([p.reshape(-1)[0] for p in self.module.parameters() if p.requires_grad]).sum(), 0


def check(module: nn.Module, execution: Execution) -> None:
    """Refuse what this network cannot do, before anything runs.

    Raises:
        UserError: names the setting.
    """
    asked = {
        "strategy: fsdp": execution.strategy == "fsdp",
        "tensor_parallel": execution.tensor_parallel > 1,
        "activation_checkpointing": execution.activation_checkpointing,
        "compile": execution.compile,
    }
    wanted = [name for name, on in asked.items() if on]
    if wanted and not isinstance(getattr(module, "blocks", None), nn.ModuleList):
        raise UserError(
            f"{', '.join(wanted)}: this model is no stack of blocks; train it with strategy single or ddp,"
            " tensor_parallel 1, and without activation_checkpointing and compile"
        )
    if execution.tensor_parallel > 1 and not hasattr(module, "tensor_parallel_plan"):
        raise UserError("tensor_parallel: this model has no plan for it; use strategy fsdp or ddp")
    if execution.tensor_parallel > 1:
        module.tensor_parallel_plan()  # type: ignore[operator]  # raises for a network that cannot be split
        try:
            check_division(module, execution.tensor_parallel)
        except UserError as error:
            raise UserError(f"tensor_parallel: {error}; choose a number that does, or strategy fsdp or ddp") from None


def check_division(module: nn.Module, devices: int) -> None:
    """Refuse a number of devices that cannot split this network's matrix products evenly.

    Raises:
        UserError: names what they do not divide, or says that the network cannot be split.
    """
    from torch.distributed.tensor.parallel import ColwiseParallel

    styles = module.tensor_parallel_plan()  # type: ignore[operator]
    shape: Any = getattr(module, "shape", None)
    heads: int = getattr(shape, "n_kv_head", getattr(shape, "n_head", devices))
    if heads % devices:
        raise UserError(f"{devices} devices do not divide {heads} heads")
    for path, style in styles.items():
        matrix: Any = module.get_submodule(path).weight
        width = matrix.shape[0 if isinstance(style, ColwiseParallel) else 1]
        if width % devices:
            raise UserError(f"{devices} devices do not divide the width of {path}, {width}")


def prepare(module: nn.Module, execution: Execution, mesh: DeviceMesh | None) -> nn.Module:
    """Return the network to train: itself, or a sharded copy.

    Args:
        mesh: `data_parallel` x `tensor_parallel` processes, under a sharded strategy.
    """
    if mesh is not None:
        module = copy.deepcopy(module)
        if execution.tensor_parallel > 1:
            module = parallelize_module(module, mesh["tensor_parallel"], module.tensor_parallel_plan())  # type: ignore[operator]
    for block in getattr(module, "blocks", ()):
        if execution.compile:
            block.forward = _compiled(block.forward)
        if execution.activation_checkpointing:
            block.forward = _recomputed(block.forward)
    if mesh is not None and execution.strategy == "fsdp":
        data = mesh["data_parallel"]
        for block in module.blocks:  # type: ignore[union-attr]
            fully_shard(block, mesh=data)
        fully_shard(module, mesh=data)
        for name in ("loss", "masked_loss"):
            if hasattr(module, name):
                register_fsdp_forward_method(module, name)
    return module


def _compiled(forward: Any) -> Any:
    """Compile for training, one graph per shape; validation, with other shapes, runs uncompiled."""
    # torch's cache of compiled code does not tell processors apart: loops cut for AVX-512 give NaN in AVX2.
    torch.compiler.config.cache_key_tag = torch.backends.cpu.get_cpu_capability()
    compiled = torch.compile(forward, dynamic=False)

    @functools.wraps(forward)
    def either(*arguments: Any, **options: Any) -> Any:
        return (compiled if torch.is_grad_enabled() else forward)(*arguments, **options)

    return either


def _recomputed(forward: Any) -> Any:
    """Keep only the input, and recompute, with the same dropout, in the backward pass."""

    @functools.wraps(forward)
    def again(*arguments: Any, **options: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*arguments, **options)
        return checkpoint(forward, *arguments, use_reentrant=False, **options)

    return again


def restore(module: nn.Module) -> None:
    """Undo compilation and recomputation."""
    for block in getattr(module, "blocks", ()):
        block.__dict__.pop("forward", None)


def release(module: nn.Module) -> None:
    """Free the memory of a network's parameters, while a sharded copy is trained."""
    for parameter in module.parameters():
        parameter.data = torch.empty(0, dtype=parameter.dtype)


def reshard(module: nn.Module) -> None:
    """Free parameters that validation left gathered, so that the next pass sees new weights."""
    for part in module.modules():
        if isinstance(part, FSDPModule):
            part.reshard()


@torch.no_grad()
def gather(sharded: nn.Module, module: nn.Module, keep: bool) -> None:
    """Copy the whole weights of a sharded copy into the original network.

    Args:
        module: a network whose parameters were released.
        keep: whether this process wants them; all must take part.
    """
    parameters, buffers = dict(module.named_parameters()), dict(module.named_buffers())
    for name, value in weights(sharded).items():
        whole: Tensor = value.full_tensor() if isinstance(value, DTensor) else value
        if not keep:
            continue
        if name in parameters:
            parameters[name].data = whole.to("cpu", copy=True)
        else:
            buffers[name].copy_(whole)


def lost_another(error: BaseException) -> bool:
    """Return whether an exchange failed because the other process is gone (by gloo's and NCCL's messages)."""
    words = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "remote process exited")
    return isinstance(error, RuntimeError) and any(word in str(error) for word in words)
