"""Records what can be seen of a running training: points in a file, sent on by a `Sender`.

    .lexmill/metrics/<run>.jsonl      one JSON object a line:
        {"kind": "training", ...}     which training this is, first
        {"kind": "begin", ...}        it starts or resumes: after which step, in which run of the pipeline
        {"kind": "row", ...}          a row of the curve, as in reports/curves/
        {"kind": "live", ...}         speed, memory, and the loss since the previous point, by the clock
        {"kind": "system", ...}       the machine: processors, memory, GPUs
        {"kind": "sample", ...}       a text
        {"kind": "made", ...}         the hash of the finished weights, last

Each line is written at once, whole, in one call, so a kill loses none that a checkpoint holds; a resumed training drops
the lines after its checkpoint's step and writes them again. Live points come five seconds apart, later a thousandth of
the elapsed time: some four thousand a day. Watching never changes the training. Cost: two microseconds a step, some
fifty a line.
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
_SAMPLE_AFTER_SECONDS = 30.0  # the first one's cost is unknown: earlier, it could be a percent
_SYSTEM_SHARE = 0.0025
_SEND_AFTER_SECONDS = 15.0  # publishing sends the points of shorter trainings

Sampler = Callable[["nn.Module"], str]
"""Returns a short text from the network, which is in evaluation mode; leaves all global random states alone."""


class Sender(Protocol):
    """Sends the lines of a growing file on (`tracking.live`). No call may wait for a server."""

    def start(self, points: Path) -> None:
        """Start sending this file."""

    def close(self) -> None:
        """Finish: no more lines come. Wait some seconds at most for what is being sent."""


class Watch:
    """Follows one training. Nothing is recorded until `start`, which only the first rank calls.

    The engine calls `start`, `step`, `row`, `sample` and works `aside`; the owner of the watch calls `made` when the
    weights are in place, and closes it (it is a context manager).

    Args:
        run: `<stage>-<name>`.
        meter: of the speed.
        folder: of the file.
        sender: sends the points on; None: they stay here.
        sampler: makes the samples; None: no samples.
        sample_every: steps between samples; 0: never.
        system_seconds: between two samples of the machine; 0: never.
        counted: what the meter counts (`Task.counted`), for the speed's name.
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

    def start(self, step: int, training: str) -> None:
        """Record that the training starts, or resumes after `step`.

        Args:
            training: identifies it (the name of its checkpoint folder).
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
        """Record the end of optimizer step `step` (from 1).

        Args:
            tokens: targets of this step, over all ranks.
            loss: nats per target, of this step.
            grad_norm: before clipping.
            skipped: steps skipped by the guard so far; if it has grown, this loss does not count.
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
        """Record a row of the curve (`curve.COLUMNS`), unless the file of a resumed training already has it."""
        if self._on and row["step"] > self._last_row:
            self._last_row = row["step"]
            self._write("row", row)

    def sample(self, step: int, module: nn.Module) -> None:
        """Take a sample after a step, if due; `module` is not sharded.

        There is none in the first half minute, nor while samples have taken more than 0.25 % of the time so far.
        """
        if not self._on or self._sampler is None or not self._sample_every or step % self._sample_every:
            return
        training, begun = module.training, self.meter.seconds
        if begun < _SAMPLE_AFTER_SECONDS or self._sample_seconds > _SAMPLE_SHARE * begun:
            return
        import torch

        module.eval()
        try:
            # A compiled network would be recompiled for each length of text.
            with self.aside(), torch.compiler.set_stance("force_eager"):
                text = self._sampler(module)
        except RuntimeError as error:  # out of memory: the training continues without samples
            self._sampler = None
            progress.say(f"{self.run}: no more samples: {str(error).splitlines()[0]}")
            return
        finally:
            module.train(training)
            self._sample_seconds += self.meter.seconds - begun
        self._write("sample", {"step": step, "text": text})
        # An untrained model writes any byte: no escape sequence may reach the terminal.
        line = "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in " ".join(text.split()))
        progress.say(f"{self.run} step {step}: {line}")

    def aside(self) -> AbstractContextManager[None]:
        """Leave validation or a checkpoint out of the steps' speed."""
        return self.meter.aside()

    def shown(self) -> dict[str, Any]:
        """Return what a bar shows beside the loss: tokens (or texts) per second, and the utilisation if known."""
        if not self._on:
            return {}
        rate = self.meter.recent()
        utilisation = self.meter.utilisation(rate)
        return {f"{self._counted}/s": f"{rate:,.0f}", **({} if utilisation is None else {"use": f"{utilisation:.0%}"})}

    def made(self, weights: Path) -> None:
        """Record the hash of the result's weights, by which publishing finds these points."""
        if not self._on:
            return
        if self._newest:
            self._point()
        self._write("made", {"step": self._step, "weights": sha256_file(weights)})

    def close(self) -> None:
        """Write what is left and close the sender; a second call does nothing."""
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
        """Sample the machine, unless samples have taken more than a share of the time so far."""
        seconds = self.meter.seconds
        self._next_system = seconds + max(self._every, _POINT_SHARE * seconds)
        if self._spent > _SYSTEM_SHARE * seconds:
            return
        with self.aside():
            metrics = system.sample()
        self._spent += self.meter.seconds - seconds
        if metrics:
            self._write("system", {"step": self._step, **metrics})

    def _write(self, kind: str, values: Mapping[str, Any]) -> None:
        finite = {key: value for key, value in values.items() if not isinstance(value, float) or math.isfinite(value)}
        line = json.dumps({"kind": kind, "time": self._time(), **finite}, ensure_ascii=False) + "\n"
        with open(self.path, "ab", buffering=0) as stream:
            stream.write(line.encode())

    def _time(self) -> int:
        """Milliseconds since 1970."""
        return int(self._now() * 1000)


def _change_places(path: Path, training: str) -> None:
    """Move another training's points to a name of their own, and this one's back, with the records of their sending."""
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
    """Return the lines of the file that stay when this training resumes after `step`; none of another training's."""
    try:
        whole, _, _torn = path.read_text(encoding="utf-8").rpartition("\n")
        lines = [(line, json.loads(line)) for line in whole.split("\n") if line]
    except (OSError, ValueError):
        return []
    if not lines or lines[0][1].get("training") != training:
        return []
    head, *rest = lines
    stay = [line for line, point in rest if point["kind"] != "made" and point["step"] <= step]
    return [head[0], *stay]
