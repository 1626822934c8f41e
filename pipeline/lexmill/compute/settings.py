"""The execution settings of each stage: where it runs and with what.

    stages:
      default: {launcher: local}
      train: {launcher: slurm, gpus: 1, cpus: 8, memory: 32 GB, time: 8 hours}
      train@gpt: {launcher: local, gpus: 1}

A stage takes its own entry, else its group's, else `default`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lexmill.base.shown import setting_text, value_text
from lexmill.base.strict import LONGEST, nearest, spec

LauncherName = Literal["local", "torchrun", "slurm", "kubernetes", "prefect"]
TRAINING, EVALUATION, TRANSLATION = "train", "evaluate", "translate"  # what computes on a GPU
HERE = ("code",)  # quick, and needed by the others: it runs where DVC does
ELSEWHERE = ("slurm", "kubernetes", "prefect")
LIMITING_MEMORY = ("slurm", "kubernetes")

_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}
_BYTES = {"MB": 10**6, "GB": 10**9, "TB": 10**12, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_MOST_BYTES = 10**16


@dataclass(frozen=True)
class Duration:
    """A time span: `90 seconds`, `30 minutes`, `8 hours`, `1.5 days`.

    Attributes:
        seconds: 0: without an end.
    """

    seconds: float = 0

    @classmethod
    def parse(cls, value: object) -> Duration:
        """Read a number with its unit, or 0; else raise `ValueError`."""
        found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*(second|minute|hour|day)s?", setting_text(value))
        if isinstance(value, int) and not isinstance(value, bool) and value == 0:
            return cls()
        if found is None or float(found[1]) == 0:
            raise ValueError(
                f"{value_text(value)} is no time span; write a number and its unit, '90 minutes' or '8 hours'"
            )
        seconds = float(found[1]) * _SECONDS[found[2]]
        if not seconds <= LONGEST:
            raise ValueError(f"{value_text(value)} is too long; at most {LONGEST // 86400:,} days")
        return cls(seconds)

    def __str__(self) -> str:
        for unit in ("day", "hour", "minute"):
            if self.seconds and self.seconds % _SECONDS[unit] == 0:
                number = int(self.seconds) // _SECONDS[unit]
                return f"{number} {unit}{'s' if number > 1 else ''}"
        return f"{self.seconds:g} seconds" if self.seconds else "0"


@dataclass(frozen=True)
class Memory:
    """An amount of main memory: `512 MB`, `32 GB`, `64 GiB`.

    Attributes:
        bytes: 0: not said.
    """

    bytes: int = 0

    @classmethod
    def parse(cls, value: object) -> Memory:
        """Read a number with its unit, or 0; else raise `ValueError`."""
        found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([MGT]i?B)", setting_text(value))
        if isinstance(value, int) and not isinstance(value, bool) and value == 0:
            return cls()
        if found is None or float(found[1]) == 0:
            raise ValueError(
                f"{value_text(value)} is no amount of memory; write a number and its unit, '512 MB' or '32 GB'"
            )
        amount = float(found[1]) * _BYTES[found[2]]
        if not amount <= _MOST_BYTES:
            raise ValueError(f"{value_text(value)} is too much; at most {_MOST_BYTES // 10**12:,} TB")
        return cls(int(amount))

    @property
    def mebibytes(self) -> int:
        """Return mebibytes, rounded up."""
        return -(-self.bytes // 2**20)

    def __str__(self) -> str:
        return f"{self.bytes / 10**9:g} GB" if self.bytes else "0"


@dataclass(frozen=True)
class StageSettings:
    """One entry of `stages`: where a stage, or a group of them, runs and with what."""

    launcher: LauncherName = spec("what starts it", "local")
    gpus: int | None = spec(
        "GPUs of each machine that it gets for itself; without it, those that `accelerator` and `devices` ask for",
        None,
        low=0,
        high=1024,
    )
    cpus: int = spec("cores that it gets for itself, also its threads; 0: it shares the machine's", 0, low=0, high=4096)
    memory: Memory = spec(
        "main memory that its job asks Slurm or Kubernetes for, as '32 GB'; 0: what they give", Memory()
    )
    time: Duration = spec("longest that it may run, as '8 hours'; 0: no end", Duration())


@dataclass(frozen=True)
class Slurm:
    """How jobs are given to Slurm."""

    partition: str = spec("the partition; empty: Slurm's default", "")
    account: str = spec("the account; empty: the user's default", "")
    options: tuple[str, ...] = spec("further options of sbatch, as --qos=low", ())
    requeues: int = spec(
        "how often a job that was preempted or reached its time goes back into the queue", 20, low=0, high=1000
    )
    script: str = spec("the batch script, from the workspace", "infra/slurm/stage.sbatch")


@dataclass(frozen=True)
class Kubernetes:
    """How jobs are given to Kubernetes."""

    namespace: str = spec("where the job is made; empty: that of kubectl's context", "")
    context: str = spec("kubectl's context; empty: the present one", "")
    template: str = spec("the job's manifest, to which the stage's command is added", "infra/kubernetes/stage-job.yaml")


def group_of(stage: str) -> str:
    """Return the group of a stage's address: `train` of `train@gpt`."""
    return stage.rpartition(":")[2].partition("@")[0]


def entry_of(stages: dict[str, StageSettings], stage: str) -> StageSettings:
    """Return the settings of a stage."""
    name = stage.rpartition(":")[2]
    if name in HERE:
        return StageSettings(gpus=0)
    for key in (name, group_of(stage), "default"):
        if key in stages:
            return stages[key]
    return StageSettings()


def errors_of(stages: dict[str, StageSettings], *, accelerator: str, devices: int, nodes: int) -> list[str]:
    """What cannot work in `stages`."""
    folder = Path(__file__).parent.parent / "stages"
    known = {path.stem for path in folder.glob("*.py")} - {"__init__", "entry"}
    found = []
    for key, entry in stages.items():
        group, of_item = group_of(key), f"stages.{key}"
        if key != "default" and group not in known:
            found.append(f"{of_item}: there is no such stage{nearest(group, {*known, 'default'})}")
            continue
        if group in HERE:
            found.append(f"{of_item}: this stage takes a second and runs where DVC does; leave it out")
            continue
        trains = group == TRAINING or key == "default"
        if entry.launcher == "torchrun" and not trains:
            found.append(f"{of_item}.launcher: torchrun starts the processes of a training; choose another")
        if entry.launcher in ("torchrun", "kubernetes", "prefect") and nodes > 1 and trains:
            found.append(
                f"{of_item}.launcher: {entry.launcher} runs a stage on one machine, but nodes is {nodes}; choose slurm,"
                " or local and start infra/torchrun/stage.sh on each"
            )
        if entry.memory.bytes and entry.launcher not in LIMITING_MEMORY:
            found.append(
                f"{of_item}.memory: the launcher {entry.launcher} holds no stage to it; leave it out, or choose"
                f" {' or '.join(LIMITING_MEMORY)}"
            )
        short = entry.gpus is not None and entry.gpus < devices and accelerator == "cuda" and group == TRAINING
        if short:
            found.append(f"{of_item}.gpus: {entry.gpus} for a training on {devices} devices; give it as many")
    return found
