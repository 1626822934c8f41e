"""What two processes train, whatever they share, is what one trains; what one left another number takes up."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from lexmill.errors import Terminated
from lexmill.models.common.state import snapshot
from lexmill.storage import read_json
from lexmill.training import loop
from lexmill.training.engine import FitResult
from lexmill.training.seeding import derive
from lexmill.training.task import Arrays
from tests.training import ranks_at_once
from tests.training.arithmetic_task import OPTIMIZERS, ArithmeticTask, DyingTask, settings, train

SHARES: dict[str, dict[str, Any]] = {
    "ddp": {"strategy": "ddp", "devices": 2},
    "fsdp": {"strategy": "fsdp", "devices": 2},
    "tensor": {"strategy": "single", "devices": 2, "tensor_parallel": 2},
}
# Ranks get 3 and 2 rows with unequal numbers of targets, in micro-batches of one row; every gradient is clipped.
RAGGED: dict[str, Any] = {"rows": 5, "ragged": True}
SHORT: dict[str, Any] = {"steps": 8, "clip_norm": 0.5}
SIGTERM = 15


def plan(share: str, **changes: Any) -> dict[str, Any]:
    whole = {"task": RAGGED, "settings": SHORT, "optimizer": "sober", **changes}
    return {
        **whole,
        "execution": {"micro_batch": 7, "checkpoint_seconds": 1e9, **SHARES[share], **changes.get("execution", {})},
    }


DROPOUT: dict[str, Any] = {
    "task": {**RAGGED, "dropout": 0.3},
    "optimizer": "muon",
    "settings": {**SHORT, "keep": "ema", "ema_decay": 0.8},
}
FEW: dict[str, Any] = {"task": {"rows": 1, "valid_batches": 1}}
PLANS = {
    **{share: plan(share) for share in SHARES},
    "ddp-few": plan("ddp", **FEW),
    "fsdp-few": plan("fsdp", **FEW),
    "fsdp-muon": plan("fsdp", optimizer="muon"),
    "tensor-muon": plan("tensor", optimizer="muon"),
    "fsdp-average": plan("fsdp", settings={**SHORT, "keep": "average", "evaluate_every": 2}),
    **{f"{share}-straight": plan(share, **DROPOUT) for share in SHARES},
    **{f"{share}-stopped": plan(share, **DROPOUT, die_at=4, signal=SIGTERM, stops=True) for share in SHARES},
    **{f"{share}-resumed": plan(share, **DROPOUT, root=f"{share}-stopped") for share in SHARES},
    "fsdp-recomputed": plan("fsdp", **DROPOUT, execution={"activation_checkpointing": True}),
    "fsdp-left": plan("fsdp", die_at=4, signal=SIGTERM, stops=True),
    "tensor-from-one": plan("tensor", root="one-left"),
    "fsdp-from-one": plan("fsdp", root="one-left-too"),
}


def alone(root: Path, micro_batch: str | int = "whole", **changes: Any) -> tuple[ArithmeticTask, FitResult]:
    """The same by one process, in one piece."""
    whole = {**plan("ddp", **changes)}
    task = ArithmeticTask(**whole["task"])
    chosen = settings(**whole["settings"], optimizer=OPTIMIZERS[whole["optimizer"]])
    return task, train(task, root, chosen, checkpoint_seconds=1e9, micro_batch=micro_batch)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which two processes have run all plans."""
    folder = tmp_path_factory.mktemp("ranks")
    stopped = DyingTask(4, SIGTERM, **RAGGED)
    with pytest.raises(Terminated):
        train(stopped, folder / "one-left", settings(**SHORT, optimizer=OPTIMIZERS["sober"]))
    shutil.copytree(folder / "one-left", folder / "one-left-too")
    ranks_at_once.run(folder, PLANS)
    return folder


def assert_equals(ran: Path, name: str, task: ArithmeticTask, result: FitResult, tolerance: float = 1e-5) -> None:
    weights, ended = load_file(ran / f"{name}.out"), read_json(ran / f"{name}.out.json")
    assert ended["tokens"] == result.tokens
    assert ended["metrics"] == pytest.approx(result.metrics, rel=tolerance)
    for row, wanted in zip(ended["rows"], result.rows, strict=True):
        assert row == pytest.approx(wanted, rel=tolerance)
    assert weights.keys() == snapshot(task.module).keys()
    for key, value in snapshot(task.module).items():
        torch.testing.assert_close(weights[key], value, rtol=tolerance, atol=tolerance, msg=f"{name}: {key}")


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> tuple[ArithmeticTask, FitResult]:
    return alone(tmp_path_factory.mktemp("one"))


@pytest.mark.parametrize("name", [*SHARES, "tensor-from-one", "fsdp-from-one"])
def test_two_processes_train_what_one_does(ran: Path, name: str, one: tuple[ArithmeticTask, FitResult]) -> None:
    assert min(row["grad_norm"] for row in one[1].rows) > SHORT["clip_norm"]
    assert_equals(ran, name, *one)
    assert read_json(ran / f"{name}.out.json")["now"] == (3 if "from-one" in name else 8)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("ddp-few", FEW),
        ("fsdp-few", FEW),
        ("fsdp-muon", {"optimizer": "muon"}),
        ("tensor-muon", {"optimizer": "muon"}),
        ("fsdp-average", {"settings": {**SHORT, "keep": "average", "evaluate_every": 2}}),
    ],
)
def test_so_it_is_without_rows_or_batches_and_with_what_is_kept(
    ran: Path, name: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    assert_equals(ran, name, *alone(tmp_path, **changes))


def same_bits(ran: Path, name: str, other: str) -> None:
    one, two = load_file(ran / f"{name}.out"), load_file(ran / f"{other}.out")
    assert all(torch.equal(value, two[key]) for key, value in one.items())
    ended, wanted = read_json(ran / f"{name}.out.json"), read_json(ran / f"{other}.out.json")
    assert (ended["rows"], ended["metrics"]) == (wanted["rows"], wanted["metrics"])


@pytest.mark.parametrize("share", SHARES)
def test_a_stopped_training_ends_like_a_straight_one_to_the_bit(ran: Path, share: str) -> None:
    """With dropout, Muon and the running mean."""
    same_bits(ran, f"{share}-resumed", f"{share}-straight")
    assert read_json(ran / f"{share}-resumed.out.json")["now"] == 3


def test_those_who_share_a_product_draw_the_same_dropout(ran: Path, tmp_path: Path) -> None:
    """So that they make what one process makes that draws it for the same micro-batches."""
    assert_equals(ran, "tensor-straight", *alone(tmp_path, micro_batch=7, **DROPOUT))


class RankByRank(ArithmeticTask):
    """The rows of one rank after those of the other, for one process that makes both ranks' micro-batches."""

    def batch(self, step: int, rank: int, world: int) -> Arrays:
        shares = [super(RankByRank, self).batch(step, each, 2) for each in range(2)]
        return {name: np.concatenate([share[name] for share in shares]) for name in shares[0]}


@pytest.mark.parametrize("share", ["ddp", "fsdp"])
def test_those_who_learn_from_different_rows_draw_different_dropout(
    ran: Path, tmp_path: Path, share: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each its own, though all begin with the same seed: to be made again by who knows the step, the rank and the row.

    Of the five rows, one a micro-batch, three are the first rank's.
    """

    def seed_of(seed: int, kind: str, step: int, index: int, _rank: int) -> int:
        rank, own = divmod(index, 3)
        return derive(seed, kind, step, own, rank)

    monkeypatch.setattr(loop, "derive", seed_of)
    task = RankByRank(**DROPOUT["task"])
    chosen = settings(**DROPOUT["settings"], optimizer=OPTIMIZERS[DROPOUT["optimizer"]])
    result = train(task, tmp_path, chosen, checkpoint_seconds=1e9, micro_batch=7)
    assert_equals(ran, f"{share}-straight", task, result)


def test_recomputed_blocks_draw_the_same_dropout(ran: Path) -> None:
    same_bits(ran, "fsdp-recomputed", "fsdp-straight")


def test_one_process_goes_on_with_what_two_left(
    ran: Path, tmp_path: Path, one: tuple[ArithmeticTask, FitResult]
) -> None:
    shutil.copytree(ran / "fsdp-left", tmp_path / "left")
    (folder,) = (tmp_path / "left").iterdir()
    files = {path.name for path in (folder / "step-00000005").iterdir()}
    assert {"weights-00000-of-00002.safetensors", "weights-00001-of-00002.safetensors"} <= files
    task, result = alone(tmp_path / "left")
    assert result.steps_now == 3
    for row, wanted in zip(result.rows, one[1].rows, strict=True):
        assert row == pytest.approx(wanted, rel=1e-5)
    for key, value in snapshot(one[0].module).items():
        torch.testing.assert_close(snapshot(task.module)[key], value, rtol=1e-5, atol=1e-5, msg=key)


def pieces(folder: Path, name: str) -> list[Mapping[str, Tensor]]:
    return [load_file(path) for path in sorted(folder.glob(f"{name}-*-of-*.safetensors"))]


def test_each_rank_wrote_half_and_nothing_twice(ran: Path) -> None:
    (folder,) = (ran / "fsdp-left").iterdir()
    step = folder / "step-00000005"
    first, second = pieces(step, "weights")
    total = sum(value.numel() for value in snapshot(ArithmeticTask().module).values())
    assert sum(value.numel() for half in (first, second) for value in half.values()) == total
    assert 0.4 < sum(value.numel() for value in first.values()) / total < 0.6


def test_four_processes_in_a_grid(tmp_path: Path, one: tuple[ArithmeticTask, FitResult]) -> None:
    """Two that learn from different rows, times two that share each product; stopped, and resumed by all and by one."""
    grid = {"execution": {"strategy": "fsdp", "devices": 4, "tensor_parallel": 2}}
    left = plan("fsdp", **grid, die_at=4, signal=SIGTERM, stops=True)
    plans = {"grid-left": left, "grid-resumed": plan("fsdp", **grid, root="grid-left")}
    ranks_at_once.run(tmp_path, plans, ranks=4)
    assert_equals(tmp_path, "grid-resumed", *one)
    assert read_json(tmp_path / "grid-resumed.out.json")["now"] == 3
    task, result = alone(tmp_path / "grid-left")
    assert result.steps_now == 3
    assert_equals(tmp_path, "grid-resumed", task, result)
