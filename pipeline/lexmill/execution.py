"""How and where a stage runs: the part of the configuration that is not identity.

`LEXMILL_EXECUTION` names a file of conf/execution/ (default `local`) or a path to one; it is read when a stage
starts and is never a DVC dependency. Two machines with other devices, micro-batches or trackers make the same
model (to the bit on the same machine kind and thread count, see docs/design.md).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lexmill.errors import UserError, UserErrors
from lexmill.params import read_yaml
from lexmill.strict import build, nearest, spec


@dataclass(frozen=True)
class Execution:
    """One conf/execution/*.yaml."""

    accelerator: Literal["cpu", "cuda", "mps"] = spec("the kind of device", "cpu")
    devices: int = spec("devices in this machine", 1, low=1)
    nodes: int = spec("machines", 1, low=1)
    strategy: Literal["single", "ddp"] = spec("how devices share a training", "single")
    threads: int = spec("torch threads of a training; 0: all cores", 0, low=0)
    micro_batch_tokens: int = spec("tokens in one forward pass of a device; 0: the whole batch", 0, low=0)
    checkpoint_root: str = spec(
        "where resumable checkpoints lie, absolute or from the workspace", ".lexmill/checkpoints"
    )
    checkpoint_seconds: float = spec("time between resumable checkpoints", 60.0, unit="seconds", low=0)
    tracking_uri: str = spec("the MLflow store or server", "sqlite:///mlflow.db")
    publish: bool = spec("publish registered models to MLflow at the end of a run", True)

    def faults(self) -> list[str]:
        if self.strategy == "single" and self.devices * self.nodes > 1:
            return [f"strategy: 'single' uses one device, but devices x nodes is {self.devices * self.nodes}"]
        return []


def load_execution(workspace: str | Path = ".") -> Execution:
    """The execution settings in force; raises `UserErrors` with all faults of the file."""
    name = os.environ.get("LEXMILL_EXECUTION", "local")
    folder = Path(workspace) / "conf" / "execution"
    path = Path(name) if name.endswith((".yaml", ".yml")) else folder / f"{name}.yaml"
    if not path.exists():
        known = [file.stem for file in folder.glob("*.yaml")]
        named = "LEXMILL_EXECUTION" in os.environ
        why = f"LEXMILL_EXECUTION names it{nearest(name, known)}" if named else "run this in the project's folder"
        raise UserError(f"the file does not exist; {why}", path)
    faults: list[str] = []
    execution = build(Execution, read_yaml(path) or {}, faults)
    if faults or execution is None:
        raise UserErrors([f"{path}: {fault}" for fault in faults])
    return execution
