"""A state that goes from window to window, beside one slow pass; stops and kills; what refuses it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file
from torch import Tensor

from lexmill import models
from lexmill.base.errors import Terminated, UserError, UserErrors
from lexmill.config.compose import compose
from lexmill.data.mixture import open_train, write_mixture
from lexmill.data.shards import TokenShards
from lexmill.kinds.language_model.carrying import CarryingTask
from lexmill.kinds.language_model.next_token import LanguageModelTask
from lexmill.models.common.state import snapshot
from lexmill.params import parse
from lexmill.training.task import Arrays, micro_batches, tensors
from tests.data.made_shards import random_documents, write_shards
from tests.training.arithmetic_task import settings, train

ROOT = Path(__file__).parents[3]
CONTEXT, ROWS, CPU = 6, 4, torch.device("cpu")
FAMILIES: dict[str, dict[str, Any]] = {
    "elman": {"ngram_rows": 31, "ngram_order": 3},
    "gru": {},
    "lstm": {"n_layer": 2, "ngram_rows": 31},
    "reservoir": {"sparsity": 0.5, "train_embedding": True},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    splits = {"train": {"text": random_documents(40, 1, 12)}, "valid": {"text": random_documents(9, 2, 12)}}
    return write_shards(tmp_path_factory.mktemp("shards") / "t", splits)


def made(folder: Path, family: str = "lstm", kind: Any = CarryingTask, **options: Any) -> Any:
    torch.manual_seed(3)
    shape = {"n_layer": 1, "d_model": 16, "context": CONTEXT, **FAMILIES.get(family, {})}
    module: Any = models.build({"family": family, "shape": shape, "vocab_size": 300})
    for parameter in module.parameters():  # large weights: what is seen by mistake moves the loss far
        torch.nn.init.normal_(parameter, std=0.3)
    shards, valid = TokenShards(folder, "train"), TokenShards(folder, "valid")
    return kind(module, shards, valid, context=CONTEXT, batch_tokens=ROWS * CONTEXT, data_seed=5, **options)


def loss(task: Any, step: int, micro_batch: int = 0) -> Tensor:
    """A step's loss, micro-batch by micro-batch."""
    parts = micro_batches(task.batch(step, 0, 1), micro_batch)
    return torch.stack([task.loss_sum(task.module, tensors(part, CPU))[0] for part in parts]).sum()


def slow_losses(task: Any, masked: bool) -> list[float]:
    """Each row's text in one pass, from the start of the epoch or of the document: the losses of an epoch's steps."""
    steps = range(task.batches.steps_per_epoch)
    batches = [task.batches.batch(step) for step in steps]
    starts = [task.batches.fresh(step, 0, 1, separate=masked) for step in steps]
    found = []
    for step in steps:
        total = 0.0
        for row in range(ROWS):
            first = max(earlier for earlier in range(step + 1) if starts[earlier][row])
            inputs, targets = (np.concatenate([batches[i][j][row] for i in range(first, step + 1)]) for j in (0, 1))
            begins = np.cumsum(inputs == task.batches.shards.eos_id) if masked else np.zeros_like(inputs)
            targets[:-CONTEXT] = -100
            one = [torch.from_numpy(array)[None] for array in (inputs, targets, begins)]
            total += float(task.module.loss(*one))
        found.append(total)
    return found


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_the_losses_of_windows_are_those_of_one_pass_over_the_text(folder: Path, family: str, masked: bool) -> None:
    task = made(folder, family, mask_documents=masked)
    wanted = slow_losses(task, masked)
    assert [float(loss(task, step)) for step in range(len(wanted))] == pytest.approx(wanted, rel=1e-5)
    cut = made(folder, family, mask_documents=masked)
    assert [float(loss(cut, step, CONTEXT)) for step in range(len(wanted))] == pytest.approx(wanted, rel=1e-5)
    apart = made(folder, family, mask_documents=masked)
    for step in range(3):
        apart.carry({})
        assert (step > 0) == (float(loss(apart, step)) != pytest.approx(wanted[step], rel=1e-5))


def test_no_gradient_flows_into_the_window_before(folder: Path) -> None:
    """The gradient is that of the window alone, begun from the numbers of the state."""
    task = made(folder, "elman")
    loss(task, 0)
    state = task.carried()["0/0"]
    assert not state.requires_grad
    whole = torch.autograd.grad(loss(task, 1), list(task.module.parameters()))
    task.carry({**task.carried(), "0/0": state, "previous": torch.from_numpy(task.batch(0, 0, 1)["inputs"])[:, -2:]})
    again = torch.autograd.grad(loss(task, 1), list(task.module.parameters()))
    assert all(torch.equal(one, other) for one, other in zip(whole, again, strict=True))


def test_validation_is_as_without(folder: Path) -> None:
    carrying, plain = made(folder), made(folder, kind=LanguageModelTask)
    loss(carrying, 0)
    with torch.no_grad():
        sums = [
            [task.validation_sums(task.module, tensors(one, CPU)) for one in task.validation_batches(0, 1)]
            for task in (carrying, plain)
        ]
    assert all(torch.equal(one, other) for one, other in zip(*sums, strict=True))


def test_a_state_that_is_not_finite_starts_afresh(folder: Path) -> None:
    tasks = made(folder, "gru"), made(folder, "gru")
    for task, filled in zip(tasks, (torch.nan, 0.0), strict=True):
        loss(task, 0)
        task.carry({"0/0": task.carried()["0/0"].index_fill(1, torch.tensor([2]), filled)})
    one, other = (loss(task, 1) for task in tasks)
    assert one.isfinite()
    assert torch.equal(one, other)


class Dying(CarryingTask):
    """Sends its process a signal at the start of a step."""

    die_at, number = -1, 0

    def batch(self, step: int, rank: int, world: int) -> Arrays:
        if step == self.die_at:
            os.kill(os.getpid(), self.number)
        return super().batch(step, rank, world)


def dying(folder: Path, family: str, at: int, number: int) -> Any:
    task = made(folder, family, Dying, mask_documents=True)
    task.die_at, task.number = at, number
    return task


def kept(root: Path) -> Mapping[str, Tensor]:
    """The carried state of the newest checkpoint."""
    (one,) = root.iterdir()
    return load_file(max(one.glob("step-*")) / "carried.safetensors")


@pytest.mark.parametrize("family", ["lstm", "reservoir"])
def test_a_killed_training_ends_like_one_that_was_not_to_the_bit(folder: Path, tmp_path: Path, family: str) -> None:
    """kill -9 in a process of its own, SIGTERM in this one; with running means, as a reservoir's fixed weights have."""
    chosen = settings(steps=9, keep="ema")
    command = [sys.executable, "-m", __name__, str(folder), str(tmp_path / "a"), family]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    with pytest.raises(Terminated):
        train(dying(folder, family, 6, signal.SIGTERM), tmp_path / "a", chosen)
    task, straight = (made(folder, family, mask_documents=True) for _ in range(2))
    ended, wanted = train(task, tmp_path / "a", chosen), train(straight, tmp_path / "b", chosen)
    assert (ended.rows, ended.metrics) == (wanted.rows, wanted.metrics)
    assert ended.steps_now < wanted.steps_now
    pairs = [(snapshot(task.module), snapshot(straight.module)), (kept(tmp_path / "a"), kept(tmp_path / "b"))]
    for one, other in pairs:
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)
    fixed = dict(made(folder, family).module.named_buffers())  # of the reservoir, averaged like all else
    assert (len(fixed) > 0) == (family == "reservoir")
    assert all(torch.equal(snapshot(task.module)[name], value) for name, value in fixed.items())
    cut = made(folder, family, mask_documents=True)
    smaller = train(cut, tmp_path / "c", chosen, micro_batch=str(CONTEXT), activation_checkpointing=True)
    assert smaller.metrics["valid_loss"] == pytest.approx(wanted.metrics["valid_loss"], rel=1e-5)


def test_trying_out_a_micro_batch_leaves_the_state_alone(folder: Path, tmp_path: Path) -> None:
    """It is tried out before the first step and after a resume."""
    chosen = settings(steps=6)
    with pytest.raises(Terminated):
        train(dying(folder, "gru", 3, signal.SIGTERM), tmp_path / "a", chosen, micro_batch="auto")
    task, straight = (made(folder, "gru", mask_documents=True) for _ in range(2))
    train(task, tmp_path / "a", chosen, micro_batch="auto")
    train(straight, tmp_path / "b", chosen)
    for name, value in snapshot(task.module).items():
        torch.testing.assert_close(value, snapshot(straight.module)[name], rtol=1e-5, atol=1e-6)


def test_several_devices_and_mixtures_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"data\.carry_state: its states are those of one device; set devices to 1"):
        made(folder).batch(0, 0, 2)
    (tmp_path / "mix").mkdir()
    write_mixture(tmp_path / "mix", {"t": (folder, 1.0)})
    task = made(folder)
    with pytest.raises(UserError, match="windows of a mixture do not follow one another"):
        CarryingTask(task.module, open_train(tmp_path / "mix"), task.valid, context=6, batch_tokens=6, data_seed=1)


def test_families_without_a_state_are_refused_with_a_sentence() -> None:
    with pytest.raises(
        UserErrors, match=r"data.carry_state: 'decoder' has no state to carry from window to window; elman"
    ):
        parse(yaml.safe_load(compose(["models.gpt.data.carry_state=true"], ROOT)))
    assert parse(yaml.safe_load(compose(["models.lstm.data.carry_state=true"], ROOT))).models["lstm"].data.carry_state


if __name__ == "__main__":
    shards, root, name = sys.argv[1:]
    train(dying(Path(shards), name, 4, signal.SIGKILL), Path(root), settings(steps=9, keep="ema"))


def test_params_with_a_mixture_are_refused_before_anything_runs() -> None:
    data = yaml.safe_load(compose(["models.lstm.data.carry_state=true"], ROOT))
    data["models"]["lstm"]["data"]["train"] = "a mixture"
    with pytest.raises(UserErrors, match=r"models\.lstm\.data\.carry_state: windows of a mixture do not follow"):
        parse(data)
