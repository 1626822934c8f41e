"""What is seen of a training: its file, its samples, and that seeing changes nothing."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from lexmill.base.errors import Terminated
from lexmill.kinds.language_model.sampling import sampler
from lexmill.models.common.state import snapshot
from lexmill.models.gpt.model import GPT
from lexmill.models.gpt.shape import Shape as GPTShape
from lexmill.tokenizers import Tokenizer
from lexmill.tokenizers.kinds import assemble, byte_model
from lexmill.training import watching
from lexmill.training.engine import fit
from lexmill.training.speed import Meter
from lexmill.training.watching import Watch

from .arithmetic_task import ArithmeticTask, DyingTask, execution, settings
from .test_speed import Clock

FILE = "train-tiny.jsonl"


def read(folder: Path, kind: str = "") -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / FILE).read_text(encoding="utf-8").split("\n") if line]
    return [line for line in lines if kind in ("", line["kind"])]


def step(watch: Watch, clock: Clock, number: int, loss: float = 2.0, *, skipped: int = 0, seconds: float = 1.0) -> None:
    clock.now += seconds
    watch.step(number, 100, loss=loss, lr=0.1, grad_norm=0.5, skipped=skipped)


def watch_of(folder: Path, clock: Clock, **options: Any) -> Watch:
    meter = Meter(10, options.pop("peak", None), clock=clock)
    return Watch("train-tiny", meter, folder=folder, now=lambda: 7.0, **options)


def test_points_come_by_the_clock_with_the_loss_of_all_steps_since(tmp_path: Path) -> None:
    clock = Clock()
    with watch_of(tmp_path, clock, peak=4000.0) as watch:
        watch.start(0, "tiny-1")
        for number, loss in enumerate([1.0, 2.0, 3.0, 4.0, 5.0, float("nan"), 100.0, 6.0], 1):
            step(watch, clock, number, loss, skipped=0 if number < 7 else 1)
    five, rest = read(tmp_path, "live")
    assert (five["step"], five["train_loss"], five["skipped"]) == (5, pytest.approx(3.0), 0)
    assert five["tokens_per_second"] == pytest.approx(100)
    assert five["flops_per_second"] == pytest.approx(1000)
    assert five["utilisation"] == pytest.approx(0.25)
    assert (five["lr"], five["grad_norm"], five["time"]) == (0.1, 0.5, 7000)
    assert five["memory_gib"] > 0
    # Neither the loss that is no number nor the one of the skipped step is in the mean.
    assert (rest["step"], rest["train_loss"], rest["skipped"]) == (8, pytest.approx(6.0), 1)


def test_what_is_unknown_is_said_to_be(tmp_path: Path) -> None:
    clock = Clock()
    with Watch("train-tiny", Meter(clock=clock), folder=tmp_path) as watch:
        watch.start(0, "tiny-1")
        step(watch, clock, 1)
        assert watch.shown() == {"tokens/s": "100"}
    (point,) = read(tmp_path, "live")
    assert point["flops_per_second"] == point["utilisation"] == "unknown"
    with watch_of(tmp_path, clock, peak=2000.0) as watch:
        assert watch.shown() == {}
        watch.start(0, "tiny-1")
        step(watch, clock, 1)
        assert watch.shown() == {"tokens/s": "100", "use": "50%"}


def test_a_day_has_some_thousand_points(tmp_path: Path) -> None:
    clock = Clock()
    with watch_of(tmp_path, clock) as watch:
        watch.start(0, "tiny-1")
        for number in range(1, 20_001):
            step(watch, clock, number, seconds=86_400 / 20_000)
    assert 2000 < len(read(tmp_path, "live")) < 4500


def test_a_resumed_training_drops_what_came_after_and_says_nothing_twice(tmp_path: Path) -> None:
    clock = Clock()
    weights = tmp_path / "weights"
    weights.write_bytes(b"w")
    watch = watch_of(tmp_path, clock)
    watch.start(0, "tiny-1")
    for number in range(1, 11):
        step(watch, clock, number, seconds=5)
        watch.row({"step": number, "train_loss": 1 / number})
    watch.made(weights)
    with open(tmp_path / FILE, "a", encoding="utf-8") as stream:
        stream.write('{"kind": "row", "st')  # torn by a kill

    again = watch_of(tmp_path, clock)
    again.start(6, "tiny-1")
    assert [line["step"] for line in read(tmp_path, "row")] == list(range(1, 7))
    again.row({"step": 6, "train_loss": 1 / 6})  # its look was under way when the checkpoint was written
    for number in range(7, 13):
        step(again, clock, number, seconds=5)
        again.row({"step": number, "train_loss": 1 / number})
    again.close()
    for kind in ("row", "live"):
        assert [line["step"] for line in read(tmp_path, kind)] == list(range(1, 13))
    assert len(read(tmp_path, "training")) == 1
    assert read(tmp_path, "made") == []

    another = watch_of(tmp_path, clock)
    another.start(6, "tiny-2")
    assert [line["kind"] for line in read(tmp_path)] == ["training", "begin"]
    (aside,) = [path for path in tmp_path.iterdir() if ".tiny-1." in path.name]  # what was not sent yet is still there
    assert len([line for line in aside.read_text(encoding="utf-8").splitlines() if '"row"' in line]) == 12

    back = watch_of(tmp_path, clock)  # the params are changed back: it goes on from its last checkpoint
    back.start(8, "tiny-1")
    assert [line["step"] for line in read(tmp_path, "row")] == list(range(1, 9))
    assert not aside.exists()
    assert [path.name for path in tmp_path.iterdir() if ".tiny-2." in path.name] == ["train-tiny.tiny-2.jsonl"]


def test_the_result_is_known_by_its_weights(tmp_path: Path) -> None:
    clock = Clock()
    (tmp_path / "weights").write_bytes(b"abc")
    with watch_of(tmp_path, clock) as watch:
        watch.start(0, "tiny-1")
        step(watch, clock, 1)
        watch.made(tmp_path / "weights")
    *_, live, made = read(tmp_path)
    assert (live["kind"], made["kind"]) == ("live", "made")
    assert made["weights"] == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


class Sending:
    def __init__(self) -> None:
        self.started: list[Path] = []
        self.closed = 0

    def start(self, points: Path) -> None:
        self.started.append(points)

    def close(self) -> None:
        self.closed += 1


def test_a_sender_begins_when_a_training_lasts_and_a_short_one_needs_none(tmp_path: Path) -> None:
    clock, sending = Clock(), Sending()
    with watch_of(tmp_path, clock, sender=sending) as watch:
        watch.start(0, "tiny-1")
        step(watch, clock, 1)
    assert (sending.started, sending.closed) == ([], 0)
    with watch_of(tmp_path, clock, sender=sending) as watch:
        watch.start(0, "tiny-1")
        for number in range(1, 31):
            step(watch, clock, number)
    watch.close()
    assert (sending.started, sending.closed) == ([tmp_path / FILE], 1)


def test_another_rank_sees_nothing(tmp_path: Path) -> None:
    with watch_of(tmp_path, Clock(), sampler=str, sample_every=1) as watch:
        watch.step(1, 100, loss=1.0, lr=0.1, grad_norm=0.5)
        watch.row({"step": 1})
        watch.sample(1, torch.nn.Linear(1, 1))
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(assemble("byte", byte_model(), lowercase=False), "f" * 64)


@pytest.fixture
def _samples_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_SAMPLE_AFTER_SECONDS", 0.0)


@pytest.mark.usefixtures("_samples_at_once")
def test_samples_are_lines_of_the_file_and_of_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    modes = []

    def sample(module: torch.nn.Module) -> str:
        modes.append(module.training)
        return "To be,\n  or not"

    module = torch.nn.Linear(1, 1)
    with watch_of(tmp_path, Clock(), sampler=sample, sample_every=3) as watch:
        watch.start(0, "tiny-1")
        for number in range(1, 8):
            watch.sample(number, module)
    assert [(line["step"], line["text"]) for line in read(tmp_path, "sample")] == [
        (3, "To be,\n  or not"),
        (6, "To be,\n  or not"),
    ]
    assert modes == [False, False]
    assert module.training
    assert capsys.readouterr().err == "train-tiny step 3: To be, or not\ntrain-tiny step 6: To be, or not\n"


@pytest.mark.usefixtures("_samples_at_once")
def test_a_sample_sends_no_escape_sequence_to_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with watch_of(tmp_path, Clock(), sampler=lambda _: "To \x1b[31mbe\x16,\n or", sample_every=1) as watch:
        watch.start(0, "tiny-1")
        watch.sample(1, torch.nn.Linear(1, 1))
    assert [line["text"] for line in read(tmp_path, "sample")] == ["To \x1b[31mbe\x16,\n or"]
    assert capsys.readouterr().err == "train-tiny step 1: To \ufffd[31mbe\ufffd, or\n"


def test_samples_come_after_half_a_minute_and_take_a_quarter_of_a_percent_of_the_time_at_most(tmp_path: Path) -> None:
    clock = Clock()

    def sample(_: torch.nn.Module) -> str:
        clock.now += 1  # as long as a step
        return "text"

    module = torch.nn.Linear(1, 1)
    with watch_of(tmp_path, clock, sampler=sample, sample_every=10) as watch:
        watch.start(0, "tiny-1")
        for number in range(1, 1001):
            step(watch, clock, number)
            watch.sample(number, module)
    assert [line["step"] for line in read(tmp_path, "sample")] == [30, 400, 800]


@pytest.mark.usefixtures("_samples_at_once")
def test_a_sample_that_finds_no_memory_ends_the_samples_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def sample(_: torch.nn.Module) -> str:
        raise torch.OutOfMemoryError("CUDA out of memory\nmore")

    module = torch.nn.Linear(1, 1)
    with watch_of(tmp_path, Clock(), sampler=sample, sample_every=1) as watch:
        watch.start(0, "tiny-1")
        watch.sample(1, module)
        watch.sample(2, module)
    assert module.training
    assert capsys.readouterr().err == "train-tiny: no more samples: CUDA out of memory\n"


def test_a_sample_is_the_same_for_the_same_weights_and_draws_nothing_of_ours(tokenizer: Tokenizer) -> None:
    torch.manual_seed(0)
    module = GPT(GPTShape(n_layer=1, n_head=2, d_model=16, context=32, dropout=0.5), tokenizer.vocab_size).eval()
    before = torch.get_rng_state()
    write = sampler(tokenizer, "ab", tokens=12)
    text = write(module)
    assert text == write(module)
    assert text.startswith("ab")
    assert torch.equal(torch.get_rng_state(), before)
    assert all(parameter.grad is None for parameter in module.parameters())

    # The tokens are draws from the softmax of plain forward passes, with the forbidden ones left out.
    ids = [tokenizer.encode("ab")]
    generator = torch.Generator().manual_seed(0)
    for _ in range(12):
        with torch.no_grad():
            logits = module(torch.tensor(ids))[0, -1]
        logits[list(tokenizer.never_written)] = -torch.inf
        token = int(torch.multinomial((logits / 0.8).softmax(0), 1, generator=generator))
        if token == tokenizer.eos_id:
            break
        ids[0].append(token)
    assert text == "ab" + tokenizer.decode(ids[0][2:])


def test_a_long_prompt_leaves_room_in_the_context(tokenizer: Tokenizer) -> None:
    torch.manual_seed(0)
    module = GPT(GPTShape(n_layer=1, n_head=2, d_model=16, context=8, dropout=0.0), tokenizer.vocab_size).eval()
    prompt = "a long prompt, " * 3
    assert sampler(tokenizer, prompt)(module).startswith(prompt)
    assert sampler(tokenizer, "")(module) is not None


@pytest.mark.parametrize("stopped", [False, True])
def test_training_is_to_the_bit_as_it_would_be_unseen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped: bool
) -> None:
    """With dropout, a sample after each step, points at every step; also when it is stopped on the way."""
    monkeypatch.setattr(watching, "_POINT_SECONDS", 0.0)
    monkeypatch.setattr(watching, "_SAMPLE_SHARE", 1.0)
    monkeypatch.setattr(watching, "_SAMPLE_AFTER_SECONDS", 0.0)

    def draw(module: Any) -> str:
        return str(module(torch.tensor([[1, 2]]))[0, -1].argmax().item())

    def train(folder: Path, seen: bool, die_at: int = -1) -> tuple[dict[str, torch.Tensor], Any]:
        task = DyingTask(die_at, signal.SIGTERM, dropout=0.3)
        options = {"sampler": draw, "sample_every": 1, "folder": tmp_path}
        chosen = settings()
        with Watch("train-tiny", **(options if seen else {"folder": folder / "unseen"})) as watch:  # type: ignore[arg-type]
            result = fit(task, chosen, execution(folder), name="tiny", identity={}, watch=watch if seen else None)
        return snapshot(task.module), result

    unseen, expected = train(tmp_path / "a", seen=False)
    if stopped:
        with pytest.raises(Terminated):
            train(tmp_path / "b", seen=True, die_at=6)
    weights, result = train(tmp_path / "b", seen=True)
    assert weights.keys() == unseen.keys()
    assert all(torch.equal(weights[name], unseen[name]) for name in weights)
    assert result.rows == expected.rows
    assert result.metrics == expected.metrics
    rows = read(tmp_path, "row")
    assert [row["step"] for row in rows] == [row["step"] for row in expected.rows]
    assert [row["train_loss"] for row in rows] == [row["train_loss"] for row in expected.rows]
    assert [line["step"] for line in read(tmp_path, "sample")] == list(range(1, 13))
    assert os.listdir(tmp_path / "a") == os.listdir(tmp_path / "b")
    assert not (tmp_path / "a" / "unseen").exists()
    assert dataclasses.is_dataclass(result)


def test_the_whole_task_trains_with_a_watch(tmp_path: Path) -> None:
    with Watch("train-tiny", Meter(), folder=tmp_path) as watch:
        fit(ArithmeticTask(), settings(), execution(tmp_path), name="tiny", identity={}, watch=watch)
    looks = [row for row in read(tmp_path, "row") if "valid_loss" in row]
    assert [row["step"] for row in looks] == [4, 8, 12]
    assert read(tmp_path, "training")[0]["training"].startswith("tiny-")
