"""Optimizers over parameters that two processes share out (FSDP2): the steps and the state of one process."""

from pathlib import Path
from typing import Any

import torch
import torch.distributed
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.multiprocessing.spawn import spawn

from lexmill.params import AdamW, Muon, Optimizer
from lexmill.training import optimizers
from tests.training.test_optimizers import Blocks, train

CHOICES: dict[str, Optimizer] = {
    "adamw": AdamW("adamw", lr=0.02, eps=1e-3),
    "muon": Muon("muon", lr=0.02, adamw_lr=0.01, eps=1e-3),
}


def _train(settings: Optimizer, shard: bool) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Weights and state after 4 steps; between them the state goes out and into a fresh optimizer."""
    module = Blocks()
    if shard:
        mesh = init_device_mesh("cpu", (2,))
        for block in module.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(module, mesh=mesh)
    built = optimizers.build(module, settings)
    train(module, built, 1, 2)
    saved = built.state_tensors()
    built = optimizers.build(module, settings)
    built.load_state_tensors(saved)
    train(module, built, 3, 4)
    weights: dict[str, Any] = {name: p.detach() for name, p in module.named_parameters()}
    return {name: p.full_tensor() if shard else p for name, p in weights.items()}, built.state_tensors()


def _worker(rank: int, root: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{root}/meeting", rank=rank, world_size=2)
    try:
        for name, settings in CHOICES.items():
            weights, state = _train(settings, shard=True)
            if rank == 0:
                torch.save({"weights": weights, "state": state}, f"{root}/{name}.pt")
    finally:
        torch.distributed.destroy_process_group()


def test_two_processes_make_the_steps_of_one(tmp_path: Path) -> None:
    spawn(_worker, (str(tmp_path),), nprocs=2)
    for name, settings in CHOICES.items():
        weights, state = _train(settings, shard=False)
        shared = torch.load(tmp_path / f"{name}.pt", weights_only=True)
        for wanted, found in ((weights, shared["weights"]), (state, shared["state"])):
            assert set(found) == set(wanted)
            for key, value in wanted.items():
                torch.testing.assert_close(found[key], value, rtol=1e-5, atol=1e-6, msg=f"{name} {key}")
