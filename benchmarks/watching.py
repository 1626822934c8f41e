"""What being seen costs: steps of one training with its watch and the process that sends its points, and without.

One `engine.fit` of a GPT, in a process of its own; after every 25 steps the watch is switched on or off and the sending
process stopped or let go on, so that what the machine does beside hits both sides alike. Watched steps write their rows
and points, sample a text of 64 tokens every 250 steps, and are sent to an MLflow database from the start (in use: after
fifteen seconds), MLflow's import included. Wall time of a step: the sending process takes only what is left over of the
processor, so what it takes from the training is in there. The training must end at the loss of one that nobody
watched, to the bit.

The difference of the two sides is small beside their spread, so each run also tells on stderr the share of the watched
steps' time that its thread spent in the watch's own calls, and the processor time of the sending process: of its start,
which is that of its first half minute, and as a share of the watched time from then on.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import engine
from benchmarks.engine import Size
from benchmarks.measure import Comparison, child

SHORT_STEPS = Size(4, 128, 128, 2048, 512, 2600)  # 1.1 million parameters, 512 tokens a step: little to hide behind
BLOCK = 25
START_SECONDS = 30.0


def compare(repetitions: int, size: Size = SHORT_STEPS, block: int = BLOCK) -> list[Comparison]:
    """Measure both sides."""
    text = json.dumps(asdict(size))
    runs = [child("watching", "watched", text, block) for _ in range(repetitions)]
    unseen = child("watching", "unseen", text, block)
    if {run["loss"] for run in runs} != {unseen["loss"]}:
        raise RuntimeError("being seen changed the training")
    for run in runs:
        print(
            f"watching: {run['calls']:.2%} of the watched steps' time in the watch's calls; the sending process takes"
            f" {run['sending_start']:.1f} s of a processor to start, then {run['sending']:.2%} of the watched time",
            file=sys.stderr,
        )
    what = f"GPT of {unseen['parameters'] / 1e6:.1f} M parameters, {size.batch_tokens} tokens a step"
    on, off = ([value for run in runs for value in run[side]] for side in ("on", "off"))
    return [Comparison("watching", what, "ms a step", ("watched and sent", on), ("unseen", off))]


@dataclass
class Switch:
    """Asked for a batch, it notes the time, and switches after each block of steps."""

    watch: Any
    block: int
    untimed: int
    watched: bool = True
    seconds: dict[str, list[float]] = field(default_factory=lambda: {"on": [], "off": []})
    calls: float = 0.0
    started: tuple[float, float] | None = None
    _begun: float = 0.0

    def __post_init__(self) -> None:
        """Count the time that the training's thread spends in what the engine calls."""
        for name in ("step", "row", "sample", "shown"):
            setattr(self.watch, name, self._counted(getattr(self.watch, name)))

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **named: Any) -> Any:
            begun = time.thread_time()
            try:
                return call(*arguments, **named)
            finally:
                self.calls += self.watched * (time.thread_time() - begun)

        return counted

    def step(self, step: int) -> None:
        done = step - self.untimed
        if done < 0 or done % self.block:
            return
        now = time.perf_counter()
        if done:
            self.seconds["on" if self.watched else "off"].append((now - self._begun) / self.block)
            if self.started is None and self.watched_seconds > START_SECONDS:
                self.started = self.watched_seconds, self.sending
            self._set(not self.watched)
        self._begun = time.perf_counter()

    @property
    def watched_seconds(self) -> float:
        """Of all watched steps so far."""
        return self.block * sum(self.seconds["on"])

    def _set(self, watched: bool) -> None:
        self.watched = self.watch._on = watched
        if (process := self._process()) is not None:
            os.kill(process.pid, signal.SIGCONT if watched else signal.SIGSTOP)

    def _process(self) -> Any:
        sender = self.watch._sender
        child = None if sender is None else sender._child
        return None if child is None else child.process

    @property
    def sending(self) -> float:
        """Processor time of the sending process so far, in seconds."""
        process = self._process()
        if process is None:
            return 0.0
        words = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()
        return sum(map(int, words[11:15])) / os.sysconf("SC_CLK_TCK")


def _watch(task: Any, folder: Path) -> Any:
    """A watch as a stage makes it."""
    from lexmill.kinds.language_model.sampling import sampler
    from lexmill.tokenizers import Tokenizer
    from lexmill.tokenizers.kinds import assemble, byte_model
    from lexmill.tracking import store
    from lexmill.tracking.live import LiveSender
    from lexmill.training import watching
    from lexmill.training.speed import Meter

    watching._SEND_AFTER_SECONDS = 0.0
    uri = "sqlite:///mlflow.db"
    store.prepare(uri, folder)
    return watching.Watch(
        "benchmark",
        Meter(task.module.flops_per_token(), 1e12),
        folder=folder / "metrics",
        sender=LiveSender(uri, "benchmark", "benchmark", root=folder),
        sampler=sampler(Tokenizer(assemble("byte", byte_model(), lowercase=False), "f" * 64), "To be"),
        sample_every=250,
    )


def main(side: str, size: Size, block: int) -> dict[str, Any]:
    """One training: processor time of a step in each block, its last loss, the number of parameters."""
    from lexmill.compute.execution import Execution
    from lexmill.params import AdamW, ConstantSchedule
    from lexmill.training.engine import fit
    from lexmill.training.settings import TrainingSettings

    settings = TrainingSettings(
        optimizer=AdamW("adamw", engine.LR, weight_decay=0.0),
        schedule=ConstantSchedule("constant"),
        steps=size.steps + 1,
        seed=0,
        validate_every=size.steps + 1,
        keep="last",
    )
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        task = engine._task(size, folder)
        watch, switch = None, None
        if side == "watched":
            watch = _watch(task, folder)
            switch = Switch(watch, block, size.untimed)
            batch = task.batch

            def switching(step: int, rank: int, world: int) -> Any:
                switch.step(step)
                return batch(step, rank, world)

            task.batch = switching
        execution = Execution(checkpoint_root=str(folder / "checkpoints"), checkpoint_seconds=1e9)
        loss = fit(task, settings, execution, name="benchmark", identity={}, watch=watch).train_loss
        if switch is not None:
            sending = switch.sending
            switch._set(True)
            switch.watch.close()
    found: dict[str, Any] = {"loss": loss, "parameters": task.module.count_parameters()}
    if switch is not None:
        found |= {name: [1000 * value for value in values] for name, values in switch.seconds.items()}
        watched = switch.watched_seconds
        start, begun = switch.started or (0.0, 0.0)
        rest = max(0.0, sending - begun) / (watched - start)
        found |= {"calls": switch.calls / watched, "sending_start": begun, "sending": rest}
    return found


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Size(**json.loads(sys.argv[2])), int(sys.argv[3]))))
