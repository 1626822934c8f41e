"""`micro_batch: auto`: the fastest size that fits, found without a trace."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from lexmill.base.errors import UserError
from lexmill.models.common.state import snapshot
from lexmill.params.optimizers import AdamW
from lexmill.training import micro_batch, random_states
from lexmill.training.engine import fit
from lexmill.training.micro_batch import choose, explain_out_of_memory, find, free_memory
from lexmill.training.task import Arrays

from .arithmetic_task import ArithmeticTask, execution, settings

WIDTH = 8
Array = np.ndarray[Any, Any]


def batch(rows: int) -> dict[str, Array]:
    return {"inputs": np.zeros((rows, WIDTH), np.int64), "weights": np.zeros(rows)}


class Machine:
    """A fake clock and a fake memory: trials of more than `most` rows run out."""

    def __init__(self, seconds: Callable[[int], float], most: float = math.inf) -> None:
        self.now, self.seconds, self.most = 0.0, seconds, most
        self.tried: list[int] = []

    def perf_counter(self) -> float:
        return self.now

    def trial(self, part: Mapping[str, Array]) -> None:
        rows = len(part["inputs"])
        self.tried.append(rows)
        self.now += self.seconds(rows)
        if rows > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


@pytest.fixture
def module() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))


def found(machine: Machine, rows: int, module: nn.Module, monkeypatch: pytest.MonkeyPatch, **options: Any) -> int:
    monkeypatch.setattr(micro_batch.time, "perf_counter", machine.perf_counter)
    return find(batch(rows), machine.trial, module, **options)


def test_the_largest_that_fits_where_larger_is_faster(module: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(lambda rows: 1 + 0.1 * rows, most=20)
    assert found(machine, 100, module, monkeypatch) == 16 * WIDTH
    assert machine.tried == [1, 1, 1, 2, 2, 4, 4, 8, 8, 16, 16, 32]


def test_the_whole_batch_where_all_of_it_fits(module: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(lambda rows: 1 + 0.1 * rows)
    assert found(machine, 24, module, monkeypatch) == 24 * WIDTH
    assert machine.tried[-2:] == [24, 24]


def test_the_fastest_where_caches_are_small(module: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(lambda rows: 1 + rows + 0.2 * max(0, rows - 4) ** 2)
    assert found(machine, 64, module, monkeypatch) == 4 * WIDTH


def test_the_smaller_of_two_that_are_as_fast(module: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(Machine(lambda rows: rows * 1.0), 64, module, monkeypatch) == WIDTH


def test_not_even_one_row_fits(module: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"out of memory with 8 tokens at once: lower micro_batch in conf/execution/"):
        found(Machine(float, most=0), 4, module, monkeypatch)


def test_a_rank_with_less_memory_speaks_for_all(module: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other rank runs out at 8 rows: its numbers come through `agree`."""
    machine = Machine(lambda rows: 1 + 0.1 * rows)

    def agree(number: int) -> int:
        return micro_batch._NO_ROOM if machine.tried and machine.tried[-1] == 8 and number > 1 else number

    assert found(machine, 64, module, monkeypatch, agree=agree) == 4 * WIDTH
    assert max(machine.tried) == 8


def test_another_error_is_no_lack_of_memory(module: nn.Module) -> None:
    def trial(_: object) -> None:
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        find(batch(4), trial, module)


def test_it_leaves_no_trace(module: nn.Module) -> None:
    states = random_states.tensors()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    for parameter in module.parameters():
        parameter.grad = torch.full_like(parameter, 3.0)

    def trial(part: Mapping[str, Array]) -> None:
        noise = torch.randn(len(part["inputs"]) + 1, 4) + float(np.random.rand())
        module(noise).sum().backward()
        if len(part["inputs"]) == 8:
            raise MemoryError

    find(batch(16), trial, module)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert all(p.grad is not None and bool((p.grad == 3.0).all()) for p in module.parameters())
    assert all(torch.equal(value, states[name]) for name, value in random_states.tensors().items())


def test_what_was_found_is_kept_for_the_same_training_on_the_same_machine(
    module: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept, key = tmp_path / "micro_batch.json", {"threads": 2}
    machine = Machine(lambda rows: 1 + 0.1 * rows, most=4)
    monkeypatch.setattr(micro_batch.time, "perf_counter", machine.perf_counter)
    assert choose(batch(16), machine.trial, module, kept=kept, key=key) == 4 * WIDTH
    assert "auto found 4 of 16 rows at once (32 tokens)" in capsys.readouterr().err
    machine.most = math.inf
    assert choose(batch(16), machine.trial, module, kept=kept, key=key) == 4 * WIDTH
    assert choose(batch(16), machine.trial, module, kept=kept, key={"threads": 1}) == 16 * WIDTH
    # Where another rank has nothing kept, all look again.
    machine.most = 2
    others = iter([1])
    again = choose(
        batch(16), machine.trial, module, kept=kept, key={"threads": 1}, agree=lambda n: max(n, next(others, 0))
    )
    assert again == 2 * WIDTH
    kept.write_text("{", encoding="utf-8")
    assert choose(batch(16), machine.trial, module, kept=kept, key=key) == 2 * WIDTH


def test_a_cpu_does_not_try_what_would_not_fit(module: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    """Peaks grow by 10 bytes a row; 100 are free of which 80 may be taken, the optimizer's state needs 2 * 112."""
    machine = Machine(lambda rows: 1 + 0.1 * rows)
    monkeypatch.setattr(micro_batch, "_peak", lambda: 10**6 + 10 * (machine.tried[-1] if machine.tried else 0))
    monkeypatch.setattr(micro_batch, "free_memory", lambda: 100 + 224 / 0.8)
    assert found(machine, 64, module, monkeypatch) == 8 * WIDTH
    assert max(machine.tried) == 8  # 16 would need 80 more


def test_what_the_backward_pass_keeps_counts_where_the_peak_shows_nothing(
    module: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process held much more before. A row's backward pass keeps 3,000 bytes, and 1.5 times that are reckoned."""
    monkeypatch.setattr(micro_batch, "_peak", lambda: 10**9)
    monkeypatch.setattr(micro_batch, "free_memory", lambda: (4500 * 8 + 224 + 1) / 0.8)
    machine = Machine(lambda rows: 1 + 0.1 * rows)
    monkeypatch.setattr(micro_batch.time, "perf_counter", machine.perf_counter)

    def trial(part: Mapping[str, Array]) -> None:
        machine.trial(part)
        torch.ones(len(part["inputs"]), 750, requires_grad=True).exp().sum().backward()

    assert find(batch(64), trial, module) == 16 * WIDTH
    assert max(machine.tried) == 16  # 32 would need 16 rows more, 8 are free


def group(root: Path, folder: str, limit: str, used: int, files: int = 0) -> None:
    where = root / "sys/fs/cgroup" / folder
    where.mkdir(parents=True, exist_ok=True)
    (where / "memory.max").write_text(f"{limit}\n")
    (where / "memory.current").write_text(f"{used}\n")
    (where / "memory.stat").write_text(f"anon 5\ninactive_file {files}\n")


def test_free_memory_is_the_machines_or_what_a_control_group_leaves(tmp_path: Path) -> None:
    assert free_memory(tmp_path) is None
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9000 kB\nMemAvailable:    8000 kB\n")
    assert free_memory(tmp_path) == 8000 * 1024
    (tmp_path / "proc/self/cgroup").write_text("0::/jobs/one\n")
    group(tmp_path, "jobs/one", "max", 1000)
    assert free_memory(tmp_path) == 8000 * 1024
    group(tmp_path, "jobs", "5000000", 3000000, files=400000)  # a limit above counts too
    assert free_memory(tmp_path) == 2400000
    group(tmp_path, "jobs/one", "3000000", 2999999)
    assert free_memory(tmp_path) == 1
    group(tmp_path, "jobs/one", "3000000", 4000000)
    assert free_memory(tmp_path) == 0


def test_free_memory_of_the_older_control_groups(tmp_path: Path) -> None:
    where = tmp_path / "sys/fs/cgroup/memory/docker/x"
    where.mkdir(parents=True)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("5:cpu:/docker/x\n4:memory:/docker/x\n")
    (where / "memory.limit_in_bytes").write_text("1000\n")
    (where / "memory.usage_in_bytes").write_text("400\n")
    assert free_memory(tmp_path) == 600


def test_running_out_in_a_step_names_what_to_lower() -> None:
    for error in (
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
        MemoryError(),
    ):
        with (
            pytest.raises(UserError, match=r"with 4,096 tokens at once: lower micro_batch"),
            explain_out_of_memory(4096),
        ):
            raise error
    with pytest.raises(UserError, match="the whole batch at once"), explain_out_of_memory(0):
        raise MemoryError
    with pytest.raises(RuntimeError, match="a bug"), explain_out_of_memory(0):
        raise RuntimeError("a bug")


def test_auto_trains_like_any_other_split(tmp_path: Path) -> None:
    """Through the engine: what is found is kept beside the checkpoints, and the losses are those of the whole batch."""

    def train(root: Path, **changes: Any) -> tuple[Any, dict[str, torch.Tensor]]:
        task = ArithmeticTask(rows=8)
        return fit(task, settings(), execution(root, **changes), name="tiny", identity={}), snapshot(task.module)

    auto, weights = train(tmp_path / "auto", micro_batch="auto")
    whole, _ = train(tmp_path / "whole")
    (kept,) = (tmp_path / "auto").glob("tiny-*.micro_batch.json")
    for folder in (tmp_path / "auto").glob("tiny-*/"):
        if folder.is_dir():
            shutil.rmtree(folder)  # the training is done; the same one again cuts its batches in the same way
    before = kept.read_bytes()
    _, again = train(tmp_path / "auto", micro_batch="auto")
    assert kept.read_bytes() == before
    assert all(torch.equal(weights[name], again[name]) for name in weights)
    for row, other in zip(auto.rows, whole.rows, strict=True):
        assert row["train_loss"] == pytest.approx(other["train_loss"], rel=1e-5)


class Constant(ArithmeticTask):
    """The same row four times at each step: the draws of dropout are all that differs."""

    def batch(self, step: int, rank: int, world: int) -> Arrays:
        return {name: array[[0] * 4] for name, array in super().batch(0, rank, world).items()}


def test_with_dropout_another_cut_is_another_draw_of_the_same_distribution(tmp_path: Path) -> None:
    """At fixed weights: mean and spread of loss and gradient agree within their errors. Each cut has its own bits.

    The four rows draw each their own mask, alone or together: one mask for both halves would widen the loss's spread
    by a factor of 1.4.
    """

    def train(root: Path, cut: str | int, steps: int = 150) -> tuple[Array, Array]:
        still = settings(steps, optimizer=AdamW("adamw", lr=0.0, weight_decay=0.0), validate_every=steps)
        chosen = execution(root, micro_batch=cut, checkpoint_seconds=1e9)
        rows = fit(Constant(dropout=0.3), still, chosen, name="tiny", identity={}).rows
        return np.array([row["train_loss"] for row in rows]), np.array([row["grad_norm"] for row in rows])

    half = 2 * (WIDTH - 1)
    whole, halves, again = train(tmp_path / "a", "whole"), train(tmp_path / "b", half), train(tmp_path / "c", half, 15)
    for one, other, same in zip(whole, halves, again, strict=True):
        assert np.array_equal(other[:15], same)
        assert np.isclose(one, other, rtol=1e-5).mean() < 0.1
        assert abs(one.mean() - other.mean()) < 3 * math.hypot(one.std(), other.std()) / math.sqrt(len(one))
        assert 0.8 < one.std() / other.std() < 1.25
