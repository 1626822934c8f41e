"""How and where a stage runs: the part of the configuration that is not identity.

`LEXMILL_EXECUTION` names a file of conf/execution/ (default `local`) or a path; it is read when a stage starts and is
never a DVC dependency. Two machines with other devices, micro-batches or trackers make the same
model (to the bit on the same machine kind and thread count, see docs/design.md).
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lexmill.base.addresses import invalid, redact
from lexmill.base.errors import UserError, UserErrors
from lexmill.base.shown import setting_text, value_text
from lexmill.base.strict import LONGEST, build, nearest, spec
from lexmill.base.workspace import main_root
from lexmill.base.yaml_file import read_yaml
from lexmill.compute.settings import Duration, Kubernetes, Slurm, StageSettings, errors_of
from lexmill.compute.workers.settings import DataWorkers


@dataclass(frozen=True)
class MicroBatch:
    """How much of its share of a batch a device computes at once: `auto`, `whole`, or a number of tokens.

    Attributes:
        tokens: positions in one forward pass; 0: the whole share.
        auto: find the largest that fits before the training starts.
    """

    tokens: int = 0
    auto: bool = False

    @classmethod
    def parse(cls, value: object) -> MicroBatch:
        """Read `auto`, `whole`, `8192` or `8192 tokens`; else raise `ValueError`."""
        text = setting_text(value)
        if isinstance(value, str) and text in ("auto", "whole"):
            return cls(auto=text == "auto")
        found = re.fullmatch(r"([0-9][0-9_]{0,15})(\s*tokens?)?", text)
        if isinstance(value, bool) or found is None or int(found[1].replace("_", "")) == 0:
            raise ValueError(
                f"{value_text(value)} is no micro-batch; write 'auto', 'whole' or a number of tokens above 0"
            )
        return cls(tokens=int(found[1].replace("_", "")))

    def __str__(self) -> str:
        return "auto" if self.auto else f"{self.tokens} tokens" if self.tokens else "whole"


@dataclass(frozen=True)
class Execution:
    """One conf/execution/*.yaml."""

    accelerator: Literal["cpu", "cuda", "mps"] = spec("the kind of device", "cpu")
    devices: int = spec("devices in this machine", 1, low=1, high=1024)
    nodes: int = spec("machines", 1, low=1, high=100_000)
    strategy: Literal["single", "ddp", "fsdp"] = spec(
        "how devices share a training: not, its data, its data and state", "single"
    )
    tensor_parallel: int = spec("devices that share each matrix product; 1: none", 1, low=1, high=1024)
    threads: int = spec("torch threads; 0: all cores, or what a container's CPU limit pays for", 0, low=0, high=1024)
    micro_batch: MicroBatch = spec("tokens in one forward pass of a device, or 'auto', or 'whole'", MicroBatch())
    activation_checkpointing: bool = spec(
        "compute each block again on the way back instead of keeping its inside", False
    )
    compile: bool = spec("compile each block with torch.compile", False)
    checkpoint_root: str = spec(
        "where resumable checkpoints lie, absolute or from the workspace", ".lexmill/checkpoints"
    )
    checkpoint_seconds: float = spec("time between resumable checkpoints", 60.0, unit="seconds", low=0, high=LONGEST)
    checkpoint_every_steps: int = spec(
        "steps between checkpoints that are kept for good; 0: none", 0, unit="steps", low=0
    )
    sample_every: int = spec(
        "steps between the texts that a language model in training writes; 0: none", 0, unit="steps", low=0
    )
    system_metrics_seconds: float = spec(
        "time between two looks at processors, memory and GPUs while a model trains; 0: none",
        10.0,
        unit="seconds",
        low=0,
        high=LONGEST,
    )
    tracking_uri: str = spec("the MLflow store or server", "sqlite:///mlflow.db")
    publish: bool = spec("publish registered models to MLflow at the end of a run", True)
    data: DataWorkers = spec("who prepares and encodes large corpora", DataWorkers())
    stages: dict[str, StageSettings] = spec(
        "where stages run and with what: by stage (`train@gpt`), by group (`train`), or `default`", factory=dict
    )
    slurm: Slurm = spec("for the launcher of that name", Slurm())
    kubernetes: Kubernetes = spec("for the launcher of that name", Kubernetes())
    work_pool: str = spec("the Prefect work pool of the launcher `prefect`", "lexmill-stages")
    poll_seconds: float = spec(
        "time between looks at a job that runs elsewhere", 5.0, unit="seconds", low=0.01, high=3600
    )
    orphan_time: Duration = spec("how long a job elsewhere goes on when nobody waits for it any more", Duration(120))
    lease_root: str = spec("where GPUs and cores are leased, for all workspaces of a machine", "/tmp/lexmill-leases")

    @property
    def world(self) -> int:
        """Return the number of devices of all machines."""
        return self.devices * self.nodes

    @property
    def sharded(self) -> bool:
        """Return whether a device holds only a part of the model."""
        return self.strategy == "fsdp" or self.tensor_parallel > 1

    def errors(self) -> list[str]:
        found, world, parallel = [], self.world, self.tensor_parallel
        if why := invalid(self.tracking_uri):
            found.append(f"tracking_uri: {value_text(redact(self.tracking_uri))}: {why}")
        if not self.checkpoint_root.strip():
            found.append("checkpoint_root: it is empty; give a folder, such as .lexmill/checkpoints")
        if world % parallel:
            found.append(f"tensor_parallel: {parallel} does not divide devices x nodes ({world})")
        if self.strategy == "single" and world > 1 and parallel != world:
            found.append(
                f"strategy: 'single' uses one device, but devices x nodes is {world}; choose ddp or fsdp, or set"
                f" tensor_parallel to {world}"
            )
        if self.strategy == "ddp" and parallel > 1:
            found.append("tensor_parallel: ddp holds whole matrices; choose strategy fsdp, or single")
        if self.accelerator == "mps" and (world > 1 or self.sharded):
            found.append("accelerator: mps is one device; choose devices 1, strategy single, tensor_parallel 1")
        if self.micro_batch.auto and self.sharded:
            found.append(
                "micro_batch: 'auto' cannot be found where devices share a model, since one out of memory stops all;"
                " give a number of tokens"
            )
        if self.compile:
            found += self._compiler_errors()
        if self.orphan_time.seconds == 0:
            found.append("orphan_time: 0 would end every job at once; give a time, such as '2 minutes'")
        for key, text, such in (
            ("lease_root", self.lease_root, "a folder, such as /tmp/lexmill-leases"),
            ("work_pool", self.work_pool, "the name of a pool, such as lexmill-stages"),
        ):
            if not text.strip():
                found.append(f"{key}: it is empty; give {such}")
        return found + errors_of(self.stages, accelerator=self.accelerator, devices=self.devices, nodes=self.nodes)

    def _compiler_errors(self) -> list[str]:
        if self.accelerator == "mps":
            return ["compile: it works on cpu and cuda; set it to false"]
        if self.tensor_parallel > 1:
            return ["compile: it was not made to work with tensor_parallel; set one of them back"]
        if not any(shutil.which(name) for name in (os.environ.get("CXX", ""), "c++", "g++", "clang++") if name):
            return [
                "compile: torch.compile needs a C++ compiler, and none is installed; install g++ or set it to false"
            ]
        return []


def settings_file(workspace: str | Path = ".") -> Path:
    """Return the file of the active execution settings; raise `UserError` where there is none."""
    name = os.environ.get("LEXMILL_EXECUTION", "local")
    home = _home(Path(workspace))
    folder = (home or Path(workspace)) / "conf" / "execution"
    path = (home or Path()) / name if name.endswith((".yaml", ".yml")) else folder / f"{name}.yaml"
    if not path.exists():
        known = [file.stem for file in folder.glob("*.yaml")]
        named = "LEXMILL_EXECUTION" in os.environ
        why = f"LEXMILL_EXECUTION names it{nearest(name, known)}" if named else "run this in the project's folder"
        raise UserError(f"the file does not exist; {why}", path)
    return path


def load_execution(workspace: str | Path = ".") -> Execution:
    """Return the active execution settings; raise `UserErrors` with all errors of the file."""
    path, home = settings_file(workspace), _home(Path(workspace))
    errors: list[str] = []
    execution = build(Execution, read_yaml(path) or {}, errors)
    if errors or execution is None:
        raise UserErrors([f"{path}: {error}" for error in errors])
    if home is not None:  # checkpoints and a local store stay in the workspace, since DVC removes the copy
        root = str(home / execution.checkpoint_root)
        return dataclasses.replace(execution, checkpoint_root=root, tracking_uri=_store_at(execution, home))
    main = main_root(Path(workspace))
    return execution if main is None else dataclasses.replace(execution, tracking_uri=_store_at(execution, main))


def _home(workspace: Path) -> Path | None:
    """Return the workspace whose experiment runs in DVC's copy `workspace`; None where it is no copy."""
    root = os.environ.get("DVC_ROOT")
    if root is None or "DVC_EXP_NAME" not in os.environ or Path(root).resolve() == workspace.resolve():
        return None
    return Path(root).resolve()


def _store_at(execution: Execution, home: Path) -> str:
    """Return the address of `home`'s store, so that a worktree's runs are in the same store."""
    uri, sqlite = execution.tracking_uri, "sqlite:///"
    return f"{sqlite}{home / uri.removeprefix(sqlite)}" if uri.startswith(sqlite) else uri
