"""What is seen while a training runs: a file of points first, then whoever sends them on.

    .lexmill/metrics/<run>.jsonl      one JSON object a line:
        {"kind": "training", ...}     which training this is, first
        {"kind": "begin", ...}        it starts, or goes on: after which step, in which run of the pipeline
        {"kind": "row", ...}          a row of the curve, as reports/curves/ will hold it
        {"kind": "live", ...}         speed, memory, and the loss since the point before, by the clock
        {"kind": "system", ...}       the machine: processors, memory, GPUs
        {"kind": "sample", ...}       a text
        {"kind": "made", ...}         the hash of the finished weights, last

Each line is written at once, whole, in one call, so a kill loses none that a checkpoint holds; a resumed training drops
the lines after the step it goes on from and makes them again. Live points come five seconds apart, later a thousandth
of the time gone by: a day has some four thousand. What is seen never changes what is trained.
Cost: two microseconds a step, some fifty for a line.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from lexmill.base import progress
from lexmill.base.storage import sha256_file, write_text
from lexmill.base.workspace import TOKEN_VARIABLE
from lexmill.training.speed import Clock, Meter, memory
from lexmill.training.system import System

if TYPE_CHECKING:
    from torch import nn

FOLDER = Path(".lexmill") / "metrics"
UNKNOWN = "unknown"

_POINT_SECONDS = 5.0
_POINT_SHARE = 0.001
_SAMPLE_SHARE = 0.0025
_SAMPLE_AFTER_SECONDS = 30.0  # the first one is measured only when it is taken: before, it could cost a percent
_SYSTEM_SHARE = 0.0025
_SEND_AFTER_SECONDS = 15.0  # a shorter training is over before anyone looks; publishing sends its points

Sampler = Callable[["nn.Module"], str]
"""A short text from the network, which is in evaluation mode. It leaves all global random states alone."""


class Sender(Protocol):
    """Who sends the lines of a file on while it grows (`tracking.live`). No call may wait for a server."""

    def start(self, points: Path) -> None:
        """There is something to send in this file."""

    def close(self) -> None:
        """No line comes any more. Waits for what is under way, for some seconds at most."""


class Watch:
    """Follows one training. Until `start` is called nothing is recorded: only the first rank calls it.

    The engine calls `start`, `step`, `row`, `sample` and works `aside`; who made the watch calls `made` when the
    weights are in place, and closes it (it is a context manager).

    Args:
        run: `<stage>-<name>`.
        meter: of the speed.
        folder: where the file goes.
        sender: who sends the points on; None: nobody.
        sampler: makes the samples; None: there are none.
        sample_every: steps between samples; 0: never.
        system_seconds: between two samples of the machine; 0: never.
        counted: what the meter counts (`Task.counted`): names the speed.
        now: the time of day, in seconds since 1970.
    """

    def __init__(
        self,
        run: str,
        meter: Meter | None = None,
        *,
        folder: Path = FOLDER,
        sender: Sender | None = None,
        sampler: Sampler | None = None,
        sample_every: int = 0,
        system_seconds: float = 0.0,
        counted: str = "tokens",
        now: Clock = time.time,
    ) -> None:
        self.run, self.path = run, folder / f"{run}.jsonl"
        self.meter = Meter() if meter is None else meter
        self._sender, self._sampler, self._sample_every, self._now = sender, sampler, sample_every, now
        self._counted = counted
        self._on = self._sending = False
        self._step = 0
        self._skipped: int | None = None
        self._last_row, self._sample_seconds = -1.0, 0.0
        self._loss_sum, self._loss_count = 0.0, 0
        self._newest: dict[str, Any] = {}
        self._next_point = 0.0
        self._system: System | None = None
        self._every, self._next_system, self._spent = system_seconds, system_seconds, 0.0

    # ---------------------------------------------------------------- the engine's side

    def start(self, step: int, training: str) -> None:
        """The training begins, or goes on after `step`.

        Args:
            training: what tells it from every other training (the name of its checkpoint folder).
        """
        _change_places(self.path, training)
        lines = _kept(self.path, step, training)
        rows = (point["step"] for point in map(json.loads, lines) if point["kind"] == "row")
        self._last_row = max(rows, default=-1)
        head = json.dumps({"kind": "training", "training": training, "run": self.run, "time": self._time()})
        begin = {"kind": "begin", "step": step, "token": os.environ.get(TOKEN_VARIABLE, ""), "time": self._time()}
        write_text(self.path, "".join(f"{line}\n" for line in [*(lines or [head]), json.dumps(begin)]))
        self._step, self._on = step, True
        self._next_point = _POINT_SECONDS
        if self._every:
            self._system, self._next_system, self._spent = System(), self._every, 0.0
        self.meter.start()

    def step(self, step: int, tokens: int, *, loss: float, lr: float, grad_norm: float, skipped: int = 0) -> None:
        """Optimizer step `step` (from 1) has ended.

        Args:
            tokens: targets of this step, over all ranks.
            loss: nats a target, of this step.
            grad_norm: before clipping.
            skipped: steps that the guard has skipped so far; where it has grown, this loss is not counted.
        """
        if not self._on:
            return
        self.meter.add(tokens)
        if skipped == (skipped if self._skipped is None else self._skipped) and math.isfinite(loss):
            self._loss_sum += loss * tokens
            self._loss_count += tokens
        self._step, self._skipped = step, skipped
        self._newest = {"lr": lr, "grad_norm": grad_norm}
        if self.meter.seconds >= self._next_point:
            self._point()
        if self._system is not None and self.meter.seconds >= self._next_system:
            self._sample_system(self._system)

    def row(self, row: Mapping[str, float]) -> None:
        """A row of the curve (`curve.COLUMNS`) is closed; where a training goes on, the file may hold its first."""
        if self._on and row["step"] > self._last_row:
            self._last_row = row["step"]
            self._write("row", row)

    def sample(self, step: int, module: nn.Module) -> None:
        """After each step: take a sample where it is time. `module` answers on its own (not sharded).

        One is left out in the first half minute, and where samples have taken more than a quarter of a percent of the
        time so far.
        """
        if not self._on or self._sampler is None or not self._sample_every or step % self._sample_every:
            return
        if self.meter.seconds < _SAMPLE_AFTER_SECONDS:
            return
        if self._sample_seconds > _SAMPLE_SHARE * self.meter.seconds:
            return
        import torch

        training, begun = module.training, self.meter.seconds
        module.eval()
        try:
            # Texts have all lengths, and a compiled network would be compiled for each.
            with self.aside(), torch.compiler.set_stance("force_eager"):
                text = self._sampler(module)
        except RuntimeError as error:  # out of memory: a training does not end for want of a sample
            self._sampler = None
            progress.say(f"{self.run}: no more samples: {str(error).splitlines()[0]}")
            return
        finally:
            module.train(training)
            self._sample_seconds += self.meter.seconds - begun
        self._write("sample", {"step": step, "text": text})
        # A young model writes any byte: no escape sequence may reach the terminal.
        line = "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in " ".join(text.split()))
        progress.say(f"{self.run} step {step}: {line}")

    def aside(self) -> AbstractContextManager[None]:
        """Leave validation or a checkpoint out of the steps' speed."""
        return self.meter.aside()

    def shown(self) -> dict[str, Any]:
        """What a bar shows beside the loss: tokens (or texts) a second, and the utilisation where it is known."""
        if not self._on:
            return {}
        rate = self.meter.recent()
        utilisation = self.meter.utilisation(rate)
        return {f"{self._counted}/s": f"{rate:,.0f}", **({} if utilisation is None else {"use": f"{utilisation:.0%}"})}

    # ---------------------------------------------------------------- the other side

    def made(self, weights: Path) -> None:
        """The result is in place: this file holds the weights, by which publishing knows whose points these are."""
        if not self._on:
            return
        if self._newest:
            self._point()
        self._write("made", {"step": self._step, "weights": sha256_file(weights)})

    def close(self) -> None:
        """Write what is left and let the sender end. Again: nothing."""
        if not self._on:
            return
        if self._newest:
            self._point()
        self._on = False
        if self._system is not None:
            self._system.close()
        if self._sending and self._sender is not None:
            self._sender.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---------------------------------------------------------------- lines

    def _point(self) -> None:
        rate = self.meter.recent()
        point: dict[str, Any] = {"step": self._step, **self._newest, "skipped": self._skipped}
        if self._loss_count:
            point["train_loss"] = self._loss_sum / self._loss_count
        point[f"{self._counted}_per_second"] = rate
        point[f"{self._counted}_per_second_whole_run"] = self.meter.whole()
        flops, utilisation = self.meter.flops(rate), self.meter.utilisation(rate)
        point["flops_per_second"] = UNKNOWN if flops is None else flops
        point["utilisation"] = UNKNOWN if utilisation is None else utilisation
        self._write("live", {**point, **memory()})
        self._loss_sum, self._loss_count, self._newest = 0.0, 0, {}
        seconds = self.meter.seconds
        self._next_point = seconds + max(_POINT_SECONDS, _POINT_SHARE * seconds)
        if self._sender is not None and not self._sending and seconds >= _SEND_AFTER_SECONDS:
            self._sending = True
            self._sender.start(self.path)

    def _sample_system(self, system: System) -> None:
        """Sample the machine; left out where samples have taken more than a share of the time so far."""
        seconds = self.meter.seconds
        self._next_system = seconds + max(self._every, _POINT_SHARE * seconds)
        if self._spent > _SYSTEM_SHARE * seconds:
            return
        with self.aside():
            figures = system.sample()
        self._spent += self.meter.seconds - seconds
        if figures:
            self._write("system", {"step": self._step, **figures})

    def _write(self, kind: str, values: Mapping[str, Any]) -> None:
        told = {key: value for key, value in values.items() if not isinstance(value, float) or math.isfinite(value)}
        line = json.dumps({"kind": kind, "time": self._time(), **told}, ensure_ascii=False) + "\n"
        with open(self.path, "ab", buffering=0) as stream:
            stream.write(line.encode())

    def _time(self) -> int:
        """Milliseconds since 1970."""
        return int(self._now() * 1000)


def _change_places(path: Path, training: str) -> None:
    """Another training's points make room, under a name of their own; those of this one, if they did so, come back.

    With them goes what is known of their sending.
    """
    try:
        with open(path, encoding="utf-8") as stream:
            other = str(json.loads(stream.readline())["training"])
    except (OSError, ValueError, KeyError):
        other = ""
    if other == training:
        return
    moves = [(training, False)] if not other else [(other, True), (training, False)]
    for whose, leaves in moves:
        label = re.sub(r"[^\w-]", "_", whose)
        for suffix in (".sent.json", ".jsonl"):
            here, aside = path.with_suffix(suffix), path.with_suffix(f".{label}{suffix}")
            source, target = (here, aside) if leaves else (aside, here)
            if source.exists():
                os.replace(source, target)


def _kept(path: Path, step: int, training: str) -> list[str]:
    """The lines of the file that stand when this training goes on after `step`; none where it is another training's."""
    try:
        whole, _, _torn = path.read_text(encoding="utf-8").rpartition("\n")
        lines = [(line, json.loads(line)) for line in whole.split("\n") if line]
    except (OSError, ValueError):
        return []
    if not lines or lines[0][1].get("training") != training:
        return []
    head, *rest = lines
    stands = [line for line, point in rest if point["kind"] != "made" and point["step"] <= step]
    return [head[0], *stands]
