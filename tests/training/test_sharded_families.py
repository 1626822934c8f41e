"""Families learn on two processes what they learn on one: Llama, recurrent ones, a reservoir, whose fixed weights stay
whole, and the supported rows of linear attention.

Documents are masked.
"""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.multiprocessing.spawn import spawn

from lexmill.compute.execution import Execution
from lexmill.models import build
from lexmill.models.common.state import snapshot
from lexmill.training import parallel

V, B, T = 31, 4, 12
CONFIGS: dict[str, dict[str, Any]] = {
    "lstm": {"n_layer": 2, "d_model": 16, "context": T},
    "gru": {"n_layer": 2, "d_model": 16, "context": T},
    "linear_attention": {
        "n_layer": 5,
        "n_head": 2,
        "d_model": 16,
        "d_ffn": 24,
        "context": T,
        "mixers": ("retnet", "gla", "mamba2", "gated_deltanet", "attention"),
        "chunk": 4,
    },
    "reservoir": {"n_layer": 2, "d_model": 16, "context": T, "sparsity": 0.5},
    "llama": {"n_layer": 2, "n_head": 4, "n_kv_head": 2, "d_model": 16, "d_ffn": 24, "context": T},
}
CASES = [
    ("lstm", {"strategy": "fsdp", "activation_checkpointing": True}),
    ("gru", {"strategy": "fsdp"}),
    ("linear_attention", {"strategy": "fsdp", "activation_checkpointing": True}),
    ("reservoir", {"strategy": "fsdp", "activation_checkpointing": True}),
    ("llama", {"strategy": "fsdp"}),
    ("llama", {"strategy": "single", "tensor_parallel": 2}),
]


def _network(family: str) -> nn.Module:
    torch.manual_seed(3)
    return build({"family": family, "shape": CONFIGS[family], "vocab_size": V}).train()


def _learn(module: nn.Module, rows: slice, share: float) -> None:
    """Three steps; a sharded gradient is the mean over the ranks, so each takes its own rows by the count of all."""
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    generator = torch.Generator().manual_seed(5)
    for _ in range(3):
        tokens, targets = torch.randint(V, (2, B, T), generator=generator)
        documents = (torch.rand(B, T, generator=generator) < 0.2).cumsum(1)
        loss = module.loss(tokens[rows], targets[rows], documents[rows])  # type: ignore[operator]
        optimizer.zero_grad()
        (loss * share / (B * T)).backward()
        optimizer.step()


def _worker(rank: int, root: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{root}/meeting", rank=rank, world_size=2)
    try:
        for index, (family, settings) in enumerate(CASES):
            execution = Execution(devices=2, **settings)
            tensors = execution.tensor_parallel
            mesh = init_device_mesh("cpu", (2 // tensors, tensors), mesh_dim_names=("data_parallel", "tensor_parallel"))
            module = _network(family)
            sharded = parallel.prepare(copy.deepcopy(module), execution, mesh)
            if tensors == 2:
                _learn(sharded, slice(0, B), 1.0)
            else:
                _learn(sharded, slice(2 * rank, 2 * rank + 2), 2.0)
            parallel.reshard(sharded)
            parallel.gather(sharded, module, keep=rank == 0)
            if rank == 0:
                torch.save(snapshot(module), f"{root}/{index}.pt")
    finally:
        torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Tensor]]:
    root = tmp_path_factory.mktemp("ranks")
    spawn(_worker, (str(root),), nprocs=2)
    return [torch.load(Path(root) / f"{index}.pt") for index in range(len(CASES))]


@pytest.mark.parametrize("index", range(len(CASES)), ids=[f"{family}-{one}" for one, (family, _) in enumerate(CASES)])
def test_two_processes_learn_what_one_does(learned: list[dict[str, Tensor]], index: int) -> None:
    family, _ = CASES[index]
    module, start = _network(family), snapshot(_network(family))
    _learn(module, slice(0, B), 1.0)
    for name, wanted in snapshot(module).items():
        torch.testing.assert_close(learned[index][name], wanted, rtol=1e-5, atol=1e-5, msg=name)
    trained = "head.weight" if family == "reservoir" else "embedding.weight"
    assert not torch.allclose(learned[index][trained], start[trained])
