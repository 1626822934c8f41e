"""kill -9 of one process of two: the other ends by itself, and the next run makes what an undisturbed one does."""

import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from lexmill.base.storage import read_json
from tests.training import ranks_at_once

SHARES: dict[str, dict[str, Any]] = {
    "ddp": {"strategy": "ddp", "devices": 2},
    "fsdp": {"strategy": "fsdp", "devices": 2},
}


def plan(share: str, **changes: Any) -> dict[str, dict[str, Any]]:
    whole = {
        "task": {"rows": 5, "ragged": True, "dropout": 0.3},
        "settings": {"steps": 14, "keep": "ema", "ema_decay": 0.8},
        "optimizer": "muon",
        "execution": SHARES[share],
    }
    return {"killed": {**whole, **changes}}


def killed(folder: Path, killer: int, plans: dict[str, dict[str, Any]], *, fresh: bool = False) -> None:
    """Run until rank `killer` is killed; the other must end by itself, and not as if it were done."""
    codes, message = zip(*(rank.end(300) for rank in ranks_at_once.launch(folder, plans, fresh=fresh)), strict=True)
    assert codes[killer] == -signal.SIGKILL, message[killer]
    assert codes[1 - killer] not in (0, -signal.SIGKILL), message[1 - killer]
    assert "RetryableError: another process of this training ended" in message[1 - killer]
    assert not (folder / "killed.out").exists()


def checkpoints(folder: Path) -> list[str]:
    (inner,) = (folder / "killed").iterdir()
    return sorted(path.parent.name for path in inner.glob("step-*/COMPLETE"))


@pytest.mark.parametrize("share", SHARES)
def test_kills_leave_no_trace_in_the_result(tmp_path: Path, share: str) -> None:
    """In a step; in the middle of a file; where each rank writes, also before the mark; then to the end."""
    killed(tmp_path, 1, plan(share, die_at=4, die_rank=1, signal=int(signal.SIGKILL)), fresh=True)
    assert checkpoints(tmp_path)[-1] in ("step-00000003", "step-00000004")
    writer = 1 if share == "fsdp" else 0
    killed(tmp_path, writer, plan(share, die_in_piece=[8, writer, "optimizer"]))
    assert checkpoints(tmp_path)[-1] == "step-00000007"
    if share == "fsdp":
        killed(tmp_path, 0, plan(share, die_in_save=11))
        assert checkpoints(tmp_path)[-1] == "step-00000010"
    ranks_at_once.run(tmp_path, {**plan(share), "straight": plan(share)["killed"]})
    ended, wanted = (read_json(tmp_path / f"{name}.out.json") for name in ("killed", "straight"))
    assert (ended["now"], wanted["now"]) == (4 if share == "fsdp" else 7, 14)
    assert (ended["rows"], ended["metrics"]) == (wanted["rows"], wanted["metrics"])
    weights = load_file(tmp_path / "straight.out")
    assert all(torch.equal(value, weights[name]) for name, value in load_file(tmp_path / "killed.out").items())
