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

from lexmill.base.errors import Terminated
from lexmill.base.storage import read_json
from lexmill.compute.execution import Execution
from lexmill.models.common.state import snapshot
from lexmill.training import loop
from lexmill.training.engine import FitResult
from lexmill.training.seeding import derive
from lexmill.training.task import Arrays
from tests.training import ranks_at_once
from tests.training.arithmetic_task import OPTIMIZERS, ArithmeticTask, BrokenTask, DyingTask, settings, train
from tests.training.test_blocks import COMPILER

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
ROUNDED: dict[str, Any] = {"settings": {**SHORT, "precision": "bf16-mixed"}}
LEFT: dict[str, Any] = {"die_at": 4, "signal": SIGTERM, "stops": True}
FAMILIES = ("lstm", "llama")
PLANS = {
    **{share: plan(share) for share in SHARES},
    "ddp-few": plan("ddp", **FEW),
    "fsdp-few": plan("fsdp", **FEW),
    "fsdp-muon": plan("fsdp", optimizer="muon"),
    "tensor-muon": plan("tensor", optimizer="muon"),
    "fsdp-average": plan("fsdp", settings={**SHORT, "keep": "average", "validate_every": 2}),
    **{f"{share}-straight": plan(share, **DROPOUT) for share in SHARES},
    **{f"{share}-stopped": plan(share, **DROPOUT, **LEFT) for share in SHARES},
    **{f"{share}-resumed": plan(share, **DROPOUT, root=f"{share}-stopped") for share in SHARES},
    **{
        f"{share}-recomputed": plan(share, **DROPOUT, counted=True, execution={"activation_checkpointing": True})
        for share in SHARES
    },
    **{f"{share}-bf16": plan(share, **ROUNDED) for share in SHARES},
    **{f"{share}-compiled": plan(share, execution={"compile": True}) for share in ("ddp", "fsdp") if COMPILER},
    "ddp-left": plan("ddp", **LEFT),
    "fsdp-left": plan("fsdp", **LEFT),
    **{f"{share}-from-one": plan(share, root=f"one-left-{share}") for share in SHARES},
    "ddp-nan": plan("ddp", broken=(4, 1, False)),
    "fsdp-nan": plan("fsdp", broken=(4, 1, False)),
    "ddp-inf-gradient": plan("ddp", broken=(4, 1, True)),
    "fsdp-inf-gradient": plan("fsdp", broken=(4, 1, True)),
    **{f"{family}-left": plan("fsdp", task={**RAGGED, "family": family}, **LEFT) for family in FAMILIES},
    **{
        f"{family}-resumed": plan("fsdp", task={**RAGGED, "family": family}, root=f"{family}-left")
        for family in FAMILIES
    },
}


def alone(root: Path, micro_batch: str | int = "whole", **changes: Any) -> tuple[ArithmeticTask, FitResult]:
    """The same by one process, in one piece."""
    whole = {**plan("ddp", **changes)}
    task: ArithmeticTask = ArithmeticTask(**whole["task"])
    if "broken" in whole:
        task = BrokenTask(*whole["broken"], **whole["task"])
    chosen = settings(**whole["settings"], optimizer=OPTIMIZERS[whole["optimizer"]])
    return task, train(task, root, chosen, checkpoint_seconds=1e9, micro_batch=micro_batch)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which two processes have run all plans."""
    folder = tmp_path_factory.mktemp("ranks")
    stopped = DyingTask(4, SIGTERM, **RAGGED)
    with pytest.raises(Terminated):
        train(stopped, folder / "one-left", settings(**SHORT, optimizer=OPTIMIZERS["sober"]), checkpoint_seconds=1e9)
    for share in SHARES:
        shutil.copytree(folder / "one-left", folder / f"one-left-{share}")
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


@pytest.mark.parametrize("name", [*SHARES, *(f"{share}-from-one" for share in SHARES)])
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
        ("fsdp-average", {"settings": {**SHORT, "keep": "average", "validate_every": 2}}),
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


@pytest.mark.parametrize("share", SHARES)
def test_recomputed_blocks_draw_the_same_dropout(ran: Path, share: str) -> None:
    """Each is computed twice in each of 8 steps, in as many micro-batches as the first rank has: 3, or all 5."""
    same_bits(ran, f"{share}-recomputed", f"{share}-straight")
    assert read_json(ran / f"{share}-recomputed.out.json")["computed"] == 2 * 8 * (5 if share == "tensor" else 3)


@pytest.mark.parametrize("share", SHARES)
def test_in_bf16_two_processes_train_what_one_does(
    ran: Path, share: str, tmp_path: Path, one: tuple[ArithmeticTask, FitResult]
) -> None:
    """Of the same micro-batches.

    Those who share rows round each of them as one process does, and add float32: what differs is a rounding that such
    a sum has tipped over, of a few numbers among thousands. Those who share products round each part before the sum,
    by up to 2^-9.
    """
    assert_equals(
        ran, f"{share}-bf16", *alone(tmp_path, micro_batch=7, **ROUNDED), 2**-9 if share == "tensor" else 1e-4
    )
    rows = read_json(ran / f"{share}-bf16.out.json")["rows"]
    assert max(abs(row["grad_norm"] / exact["grad_norm"] - 1) for row, exact in zip(rows, one[1].rows, strict=True)) > (
        5e-4  # it is not float32 that was computed in
    )


def test_in_bf16_another_cut_is_within_one_rounding(tmp_path: Path) -> None:
    """A weight's gradient is rounded once a micro-batch, by up to 2^-9."""
    (task, whole), (other, cut) = (alone(tmp_path / str(size), size, **ROUNDED) for size in ("whole", 7))
    for row, wanted in zip(cut.rows, whole.rows, strict=True):
        assert row == pytest.approx(wanted, rel=2**-9)
    for key, value in snapshot(task.module).items():
        torch.testing.assert_close(snapshot(other.module)[key], value, rtol=2**-9, atol=2**-9, msg=key)


@pytest.mark.parametrize("share", ["ddp", "fsdp"])
def test_compiled_two_processes_train_what_one_does_uncompiled(
    ran: Path, share: str, one: tuple[ArithmeticTask, FitResult]
) -> None:
    if COMPILER is None:
        assert "needs a C++ compiler" in Execution(**SHARES[share], compile=True).errors()[0]
        return
    assert_equals(ran, f"{share}-compiled", *one)
    assert read_json(ran / f"{share}-compiled.out.json")["graphs"] == 1  # all micro-batches are of one row


@pytest.mark.parametrize("share", ["ddp", "fsdp"])
@pytest.mark.parametrize("what", ["nan", "inf-gradient"])
def test_what_breaks_on_one_rank_alone_is_skipped_by_all(ran: Path, share: str, what: str, tmp_path: Path) -> None:
    """As one process skips that step: counted once, and afterwards all learn on together."""
    task, result = alone(tmp_path, broken=(4, 0, what == "inf-gradient"))
    assert result.skipped == 1
    assert_equals(ran, f"{share}-{what}", task, result)
    first, second = (read_json(ran / f"{share}-{what}.out{rank}.json") for rank in ("", ".1"))
    assert first["skipped"] == second["skipped"] == 1
    assert [row["skipped"] for row in first["rows"]] == [0] * 4 + [1] * 4
    assert [row["step"] for row in first["rows"] if "train_loss" not in row] == [5]


@pytest.mark.parametrize("family", FAMILIES)
def test_other_families_stop_and_go_on_shared_out(ran: Path, family: str, tmp_path: Path) -> None:
    assert read_json(ran / f"{family}-resumed.out.json")["now"] == 3
    assert_equals(ran, f"{family}-resumed", *alone(tmp_path, task={**RAGGED, "family": family}))


def left_by(ran: Path, name: str) -> set[str]:
    """The files of the only checkpoint, which is all that there is beside the lock and the identity."""
    (folder,) = (ran / name).iterdir()
    assert {path.name for path in folder.iterdir()} == {"lock", "identity.json", "step-00000005"}
    return {path.name for path in (folder / "step-00000005").iterdir()}


def test_what_each_rank_holds_whole_is_saved_once(ran: Path) -> None:
    files = {"weights.safetensors", "optimizer.safetensors", "best.safetensors", "random.safetensors"}
    assert left_by(ran, "ddp-left") == left_by(ran, "one-left") == files | {"state.json", "COMPLETE"}


def test_what_they_hold_in_pieces_is_saved_by_each(ran: Path) -> None:
    files = left_by(ran, "fsdp-left")
    assert {"weights-00000-of-00002.safetensors", "weights-00001-of-00002.safetensors"} <= files
    assert "weights.safetensors" not in files


@pytest.mark.parametrize("share", ["ddp", "fsdp"])
def test_one_process_goes_on_with_what_two_left(
    ran: Path, share: str, tmp_path: Path, one: tuple[ArithmeticTask, FitResult]
) -> None:
    shutil.copytree(ran / f"{share}-left", tmp_path / "left")
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
