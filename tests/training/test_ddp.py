"""Two processes make the model that one makes; a rank without rows, or without a valid batch, holds nobody up."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from lexmill.base.errors import EXIT_INTERRUPTED
from lexmill.base.storage import read_json
from lexmill.models.common.state import snapshot
from tests.training import ranks_at_once
from tests.training.arithmetic_task import SOBER, ArithmeticTask, settings, train

SCRIPT = Path(__file__).parent / "arithmetic_task.py"


def run_two(root: Path, out: Path, **plan: Any) -> subprocess.CompletedProcess[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_PORT": str(port)}
    plan["execution"] = {"strategy": "ddp", "devices": 2, **plan.get("execution", {})}
    return subprocess.run(
        [sys.executable, str(SCRIPT), str(root), str(out), json.dumps(plan)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


def test_two_processes_are_one(tmp_path: Path) -> None:
    """3 and 2 rows of unequal length, cut into micro-batches of one row; one gets Ctrl-C; resumed on the way."""
    plan: dict[str, Any] = {
        "task": {"rows": 5, "ragged": True},
        "settings": {"steps": 8},
        "optimizer": "sober",
        "execution": {"micro_batch": 7},
    }
    out = tmp_path / "out.safetensors"
    stopped = run_two(tmp_path / "a", out, **plan, die_at=4, die_rank=1, signal=int(signal.SIGINT))
    assert stopped.returncode == EXIT_INTERRUPTED, stopped.stderr
    done = run_two(tmp_path / "a", out, **plan)
    assert done.returncode == 0, done.stderr
    assert "resumes after step 5" in done.stderr

    alone = ArithmeticTask(rows=5, ragged=True)
    result = train(alone, tmp_path / "b", settings(steps=8, optimizer=SOBER), checkpoint_seconds=1e9)
    weights, ended = load_file(out), read_json(Path(f"{out}.json"))
    for name, value in snapshot(alone.module).items():
        torch.testing.assert_close(weights[name], value, rtol=1e-5, atol=1e-5, msg=name)
    assert ended["tokens"] == result.tokens
    assert ended["metrics"] == pytest.approx(result.metrics, rel=1e-5)
    for row, wanted in zip(ended["rows"], result.rows, strict=True):
        assert row == pytest.approx(wanted, rel=1e-5)


SUPPORTED = ("llama", "lstm", "gru", "linear_attention")


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The supported families, which two processes have trained."""
    folder = tmp_path_factory.mktemp("together")
    chosen: dict[str, Any] = {"settings": {"steps": 4}, "optimizer": "sober"}
    chosen["execution"] = {"strategy": "ddp", "devices": 2}
    options: dict[str, Any] = {"rows": 5, "ragged": True}
    ranks_at_once.run(folder, {one: {"task": {**options, "family": one}, **chosen} for one in SUPPORTED})
    return folder


@pytest.mark.parametrize("family", SUPPORTED)
def test_two_processes_are_one_for_every_supported_family(together: Path, tmp_path: Path, family: str) -> None:
    alone = ArithmeticTask(rows=5, ragged=True, family=family)
    fresh = snapshot(alone.module)
    result = train(alone, tmp_path, settings(steps=4, optimizer=SOBER), checkpoint_seconds=1e9)
    weights = load_file(together / f"{family}.out")
    for name, value in snapshot(alone.module).items():
        torch.testing.assert_close(weights[name], value, rtol=1e-5, atol=1e-5, msg=name)
    assert not torch.allclose(weights["embedding.weight"], fresh["embedding.weight"])
    ended = read_json(together / f"{family}.out.json")
    assert ended["metrics"] == pytest.approx(result.metrics, rel=1e-5)


def test_a_rank_without_rows_holds_nobody_up(tmp_path: Path) -> None:
    out = tmp_path / "out.safetensors"
    done = run_two(tmp_path / "a", out, task={"rows": 1, "valid_batches": 1}, settings={"steps": 3}, optimizer="sober")
    assert done.returncode == 0, done.stderr
    alone = ArithmeticTask(rows=1, valid_batches=1)
    train(alone, tmp_path / "b", settings(steps=3, optimizer=SOBER), checkpoint_seconds=1e9)
    for name, value in snapshot(alone.module).items():
        torch.testing.assert_close(load_file(out)[name], value, rtol=1e-5, atol=1e-5, msg=name)
