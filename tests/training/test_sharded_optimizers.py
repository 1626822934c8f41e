"""Optimizers and averages over parameters that two processes share out (FSDP2): what one process makes of them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.multiprocessing.spawn import spawn

from lexmill.models.common.state import weights
from lexmill.params.optimizers import AdamW, Muon, Optimizer
from lexmill.params.recipe import Keep
from lexmill.training import optimizers
from lexmill.training.keeping import Keeper
from tests.training.test_optimizers import Blocks, copied, train

CHOICES: dict[str, Optimizer] = {
    "adamw": AdamW("adamw", lr=0.02, eps=1e-3),
    "muon": Muon("muon", lr=0.02, adamw_lr=0.01, eps=1e-3),
}
KEPT: tuple[Keep, ...] = ("ema", "average", "average_best", "best")


def _blocks(shard: bool) -> Blocks:
    module = Blocks()
    if shard:
        mesh = init_device_mesh("cpu", (2,))
        for block in module.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(module, mesh=mesh)
    return module


def _whole(tensors: Mapping[str, Any]) -> dict[str, Tensor]:
    return {name: value.full_tensor() if isinstance(value, DTensor) else value for name, value in tensors.items()}


def _train(settings: Optimizer, shard: bool) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Weights and state after 4 steps; between them the state goes out and into a fresh optimizer."""
    module = _blocks(shard)
    built = optimizers.build(module, settings)
    train(module, built, 1, 2)
    saved = copied(built)
    built = optimizers.build(module, settings)
    built.load_state_tensors(saved)
    train(module, built, 3, 4)
    return _whole(weights(module)), _whole(built.named_state())


def _kept(keep: Keep, shard: bool) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """What is looked at after 3 steps, and the weights that are kept at the end."""
    module = _blocks(shard)
    built = optimizers.build(module, CHOICES["adamw"])
    keeper = Keeper("m", False, keep, averaged=2, ema_decay=0.5)
    for step in (1, 2, 3):
        train(module, built, step, step)
        keeper.update(module)
        with keeper.shown(module):
            looked = {name: value.clone() for name, value in _whole(weights(module)).items()}
        keeper.record(step, {"m": 1.0}, module)
    keeper.apply(module)
    return looked, _whole(weights(module))


def _worker(rank: int, root: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{root}/meeting", rank=rank, world_size=2)
    try:
        found = {name: _train(settings, shard=True) for name, settings in CHOICES.items()}
        found |= {keep: _kept(keep, shard=True) for keep in KEPT}
        if rank == 0:
            torch.save(found, f"{root}/found.pt")
    finally:
        torch.distributed.destroy_process_group()


def test_two_processes_make_what_one_makes(tmp_path: Path) -> None:
    spawn(_worker, (str(tmp_path),), nprocs=2)
    found = torch.load(tmp_path / "found.pt", weights_only=True)
    wanted = {name: _train(settings, shard=False) for name, settings in CHOICES.items()}
    wanted |= {keep: _kept(keep, shard=False) for keep in KEPT}
    assert set(found) == set(wanted)
    for name, parts in wanted.items():
        for part, shared in zip(parts, found[name], strict=True):
            assert set(part) == set(shared)
            for key, value in part.items():
                torch.testing.assert_close(shared[key], value, rtol=1e-5, atol=1e-6, msg=f"{name} {key}")
