"""A workspace with the project's own first stages, up to a real training of seconds, on a file of its own."""

from __future__ import annotations

import copy
import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from lexmill import params
from lexmill.base.errors import UserErrors
from lexmill.params.derived import derive
from tests.support.once import init_repository
from tests.support.processes import Started

ROOT = Path(__file__).resolve().parents[2]
STAGES = ("fetch", "prepare", "tokenizer", "encode", "train")
OURS = ("LEXMILL_", "DVC_", "PREFECT_", "MLFLOW_", "SLURM_", "SBATCH_")
MODEL: dict[str, Any] = {
    "kind": "language_model",
    "family": "gpt",
    "shape": {"n_layer": 1, "n_head": 2, "d_model": 16, "context": 16, "dropout": 0.1},
    "data": {"corpus": "rows", "train": "rows", "tokenizer": "letters"},
    "start": "gpt2.yaml",
    "recipe": {
        "method": "gradient",
        "optimizer": {"name": "adamw", "lr": 0.01},
        "schedule": {"name": "cosine", "warmup": "2 steps"},
        "length": "8 steps",
        "batch": 64,
        "validate_every": "3 steps",
        "keep": "best",
    },
    "evaluate": {"prompts": [""], "ngrams": {}},
}


def params_of(steps: int, dropout: float = 0.1) -> dict[str, Any]:
    """params.yaml of a small model and what it needs."""
    shape = MODEL["shape"] | {"dropout": dropout}
    recipe = MODEL["recipe"] | {"length": f"{steps} steps"}
    return whole(
        {
            "experiment": "small",
            "data_seed": 1,
            "training_seed": 2,
            "corpora": {
                "rows": {
                    "kind": "text",
                    "source": {"kind": "file", "paths": ["rows.txt"]},
                    "reader": {"format": "text", "document": "line"},
                }
            },
            "tokenizers": {"letters": {"corpus": "rows", "kind": "character"}},
            "models": {"toy": MODEL | {"shape": shape, "recipe": recipe}},
        }
    )


def whole(data: dict[str, Any]) -> dict[str, Any]:
    """params.yaml with what follows from its models."""
    return {"translations": {}, **data, **derive(data)}


def whole_with(data: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """params.yaml with other values: `models__toy__start` is a path of keys."""
    for path, value in changes.items():
        *parents, last = path.split("__")
        functools.reduce(dict.__getitem__, parents, data)[last] = value
    return whole(data)


def errors_of(data: dict[str, Any]) -> list[str]:
    """What is wrong with params.yaml."""
    try:
        params.parse(data)
    except UserErrors as raised:
        return raised.errors
    return []


class SmallProject:
    """The workspace: a text file, params.yaml, the stages `fetch` to `train` of the project's dvc.yaml."""

    def __init__(self, root: Path, steps: int = 8, **execution: Any) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self._be_at(root)
        init_repository(root)
        (root / "rows.txt").write_text("".join(f"{'abcdabcdabcd'[i % 4 :]}{i}\n" for i in range(400)), encoding="utf-8")
        (root / "gpt2.yaml").write_text("name: gpt2\nstd: 0.02\n", encoding="utf-8")
        self.write_params(steps)
        self.write_execution(**execution)
        stages = yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
        chosen = {name: stages[name] for name in STAGES}
        for stage in chosen.values():  # its code is the installed one, and there is no lock of moving sources
            stage["do"]["params"] = [key for key in stage["do"]["params"] if isinstance(key, str)]
            stage["do"]["deps"] = [path for path in stage["do"].get("deps", []) if not path.startswith("pipeline/")]
        chosen["train"]["do"]["params"] = ["models.${key}", "data_seed", "training_seed"]
        (root / "dvc.yaml").write_text(yaml.safe_dump({"stages": chosen}, sort_keys=False), encoding="utf-8")
        ignored = ("artifacts", ".lexmill", "mlruns", "mlflow.db*", ".mlflow.db*", "reports/samples")
        (root / ".gitignore").write_text("".join(f"/{name}\n" for name in ignored), encoding="utf-8")

    def _be_at(self, root: Path) -> None:
        self.root = root
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(OURS)},
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": f"{ROOT / 'pipeline'}{os.pathsep}{ROOT}",
            "DVC_NO_ANALYTICS": "1",
            "CI": "1",  # no look for a newer DVC
            "GIT_CONFIG_GLOBAL": os.devnull,
            **{f"GIT_{who}_{what}": "test@localhost" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
            **{name: str(root.parent / name) for name in ("DVC_SITE_CACHE_DIR", "DVC_GLOBAL_CONFIG_DIR")},
        }

    @classmethod
    def found(cls, root: Path) -> SmallProject:
        """A workspace that is there already."""
        made = cls.__new__(cls)
        made._be_at(root)
        return made

    def copy(self, root: Path, **environment: str) -> SmallProject:
        """The workspace as it stands, in another folder."""
        shutil.copytree(self.root, root, symlinks=True)
        made = copy.copy(self)
        made.root, made.environment = root, self.environment | environment
        return made

    def write_params(self, steps: int, dropout: float = 0.1) -> None:
        """Without dropout one process and several compute the same."""
        (self.root / "params.yaml").write_text(yaml.safe_dump(params_of(steps, dropout)), encoding="utf-8")

    def write_execution(self, **settings: Any) -> None:
        folder = self.root / "conf" / "execution"
        folder.mkdir(parents=True, exist_ok=True)
        everywhere = {"threads": 1, "publish": False, "lease_root": str(self.root.parent / "leases")}
        (folder / "local.yaml").write_text(yaml.safe_dump(everywhere | settings), encoding="utf-8")

    def start(self, *command: str, **environment: str) -> Started:
        """Start `python command...` in the workspace."""
        return Started(*command, root=self.root, environment=self.environment | environment)

    def run(self, *command: str, code: int = 0, **environment: str) -> str:
        """Run `python command...` to its end and hold it to its exit code; all that it said."""
        with self.start(*command, **environment) as process:
            said, _ = process.communicate(timeout=1500)
        assert process.returncode == code, f"{command}: exit {process.returncode}\n{said}"
        return said

    def git(self, *arguments: str) -> str:
        command = ["git", *arguments]
        return subprocess.run(
            command, cwd=self.root, env=self.environment, check=True, capture_output=True, text=True
        ).stdout

    def commit(self, message: str = "start") -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)

    def metrics(self) -> dict[str, float]:
        """What the training reached."""
        found: dict[str, float] = json.loads((self.root / "metrics" / "train" / "toy.json").read_text())
        return found

    def status(self) -> dict[str, Any]:
        """How the training last ended here: its code and its message."""
        found: dict[str, Any] = json.loads((self.root / ".lexmill" / "status" / "train@toy.json").read_text())
        return found

    def outputs(self) -> dict[str, Any]:
        """The hash of every output that dvc.lock knows, by stage."""
        stages = yaml.safe_load((self.root / "dvc.lock").read_text(encoding="utf-8"))["stages"]
        return {name: stage["outs"] for name, stage in sorted(stages.items())}
