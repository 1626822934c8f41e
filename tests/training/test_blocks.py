"""Blocks that are compiled or recomputed train what they train without; networks without blocks are told apart."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

from lexmill.base.errors import UserError
from lexmill.compute.execution import Execution
from lexmill.models.common.causal import CausalModel
from lexmill.models.common.state import snapshot
from lexmill.models.llama.model import Llama
from lexmill.models.llama.shape import Shape as LlamaShape
from lexmill.training.parallel import check
from tests.training.arithmetic_task import SOBER, ArithmeticTask, settings, train

COMPILER = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")


def trained(root: Path, **changes: Any) -> tuple[ArithmeticTask, list[float]]:
    """Seven rows of unequal numbers of targets, three at a time: the last micro-batch has one."""
    task = ArithmeticTask(rows=7, ragged=True, dropout=0.3)
    result = train(task, root, settings(6, optimizer=SOBER), checkpoint_seconds=1e9, micro_batch=21, **changes)
    return task, [row["train_loss"] for row in result.rows]


def test_recomputed_blocks_give_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (plain, losses), calls = trained(tmp_path / "a"), []
    block = type(plain.module.blocks[0])
    forward = block.forward

    def counted(self: nn.Module, *arguments: Any) -> Any:
        calls.append(torch.is_grad_enabled())
        return forward(self, *arguments)

    monkeypatch.setattr(block, "forward", counted)
    recomputed, again = trained(tmp_path / "b", activation_checkpointing=True)
    assert calls.count(True) == 2 * 6 * 3  # forward and once more, in six steps of three micro-batches
    assert losses == again
    weights = snapshot(plain.module)
    assert all(torch.equal(value, weights[name]) for name, value in snapshot(recomputed.module).items())
    assert "forward" not in vars(recomputed.module.blocks[0])


@pytest.mark.parametrize("family", ["gpt", "llama"])
def test_recomputed_blocks_give_the_same_bits_in_bf16(tmp_path: Path, family: str) -> None:
    chosen = settings(3, precision="bf16-mixed")
    plain, recomputed = ArithmeticTask(family=family), ArithmeticTask(family=family)
    train(plain, tmp_path / "a", chosen, checkpoint_seconds=1e9)
    train(recomputed, tmp_path / "b", chosen, checkpoint_seconds=1e9, activation_checkpointing=True)
    weights = snapshot(plain.module)
    assert all(torch.equal(value, weights[name]) for name, value in snapshot(recomputed.module).items())


def test_compiled_blocks_give_the_same_losses_and_compile_once_a_shape(tmp_path: Path) -> None:
    if COMPILER is None:
        from lexmill.compute.execution import Execution

        assert "needs a C++ compiler" in Execution(compile=True).errors()[0]
        return
    torch._dynamo.reset()
    counters.clear()
    plain, losses = trained(tmp_path / "a")
    compiled, again = trained(tmp_path / "b", compile=True, activation_checkpointing=True)
    assert again == pytest.approx(losses, rel=1e-5)
    for name, value in snapshot(plain.module).items():
        torch.testing.assert_close(snapshot(compiled.module)[name], value, rtol=1e-4, atol=1e-5, msg=name)
    assert counters["stats"]["unique_graphs"] == 2  # three rows and one, in six steps with looks between
    assert not counters["graph_break"]
    # Loops cut for one processor, found in the cache by another, give NaN.
    assert torch.compiler.config.cache_key_tag == torch.backends.cpu.get_cpu_capability()


class Heap(ArithmeticTask):
    """A network that is no stack of blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.module = nn.Linear(2, 2)  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"strategy": "fsdp"}, "strategy: fsdp"),
        ({"tensor_parallel": 2, "devices": 2}, "tensor_parallel"),
        ({"activation_checkpointing": True}, "activation_checkpointing"),
        ({"compile": True, "activation_checkpointing": True}, "activation_checkpointing, compile"),
    ],
)
def test_a_network_without_blocks_says_what_it_cannot(tmp_path: Path, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(
        UserError, match=rf"^{named}: this model is no stack of blocks; train it with strategy single or"
    ):
        train(Heap(), tmp_path, **changes)
    assert not any(tmp_path.iterdir())


def test_a_stack_without_a_plan_cannot_share_its_products(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = ArithmeticTask()
    monkeypatch.delattr(CausalModel, "tensor_parallel_plan")
    with pytest.raises(UserError, match="tensor_parallel: this model has no plan for it; use strategy fsdp or ddp"):
        train(task, tmp_path, tensor_parallel=2, devices=2)


@pytest.mark.parametrize(("d_ffn", "devices", "error"), [(16, 4, "4 devices do not divide 2 heads"), (9, 2, "width")])
def test_heads_and_widths_that_devices_do_not_divide_are_reported(d_ffn: int, devices: int, error: str) -> None:
    """Before a process starts, as `lexmill plan` tells it."""
    shape = LlamaShape(n_layer=1, n_head=4, n_kv_head=2, d_model=16, d_ffn=d_ffn, context=4)
    with pytest.raises(UserError, match=f"^tensor_parallel: .*{error}.*; choose a number that does, or strategy"):
        check(Llama(shape, 5), Execution(devices=devices, tensor_parallel=devices))
    check(Llama(shape, 5), Execution(devices=1))


@pytest.mark.parametrize("accelerator", ["cuda", "mps"])
def test_a_device_that_is_not_there_is_reported(
    tmp_path: Path, accelerator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(UserError, match=f"accelerator: there is no {accelerator} device here"):
        train(ArithmeticTask(), tmp_path, accelerator=accelerator)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(UserError, match="devices: 2 are asked for, but this machine has 1"):
        train(ArithmeticTask(), tmp_path, accelerator="cuda", devices=2, strategy="ddp")


class Hungry(ArithmeticTask):
    def loss_sum(self, module: Any, batch: Any) -> Any:
        if batch["inputs"].shape[0] > 2 and module.training:
            raise self.error
        return super().loss_sum(module, batch)

    error: BaseException


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
    ],
)
def test_running_out_of_memory_names_what_to_lower(tmp_path: Path, error: BaseException) -> None:
    task = Hungry()
    task.error = error
    with pytest.raises(UserError, match=r"micro_batch.*activation_checkpointing.*context"):
        train(task, tmp_path)
    assert train(task, tmp_path, micro_batch=14).step == 12
