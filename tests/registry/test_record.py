"""What goes into a run costs few calls, and needs no git."""

from pathlib import Path
from unittest.mock import MagicMock

import pytest

from lexmill import layout, storage
from lexmill.params import Params
from lexmill.registry import package, record

from .conftest import make


def test_a_long_curve_costs_a_few_calls(params: Params, tmp_path: Path) -> None:
    """Thousands of single calls were seen to slow a training down; here they come in batches."""
    make(params, tmp_path, "en_de")
    steps = 2500
    lines = ["step,tokens,epoch,train_loss,valid_loss,lr,grad_norm", *(f"{i},1,,2.5,,," for i in range(steps))]
    storage.write_text(tmp_path / layout.curve("en_de"), "\n".join(lines) + "\n")
    folder = package.write(params, "translator", "en_de", tmp_path)
    client, run = MagicMock(), MagicMock(inputs=None)
    run.info.run_id, run.info.start_time = "1", 0
    record.fill(client, run, folder, package.read(folder), tmp_path)
    assert not client.log_metric.called
    batches = [call.kwargs["metrics"] for call in client.log_batch.call_args_list if "metrics" in call.kwargs]
    assert len(batches) <= 1 + 2 * steps // 1000
    losses = [point for batch in batches for point in batch if point.key == "curves/train_loss"]
    assert [point.step for point in losses] == list(range(steps))


def test_without_git_or_a_repository_there_is_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert record.git_state(tmp_path) == {}
    assert set(record.git_state(Path(__file__).parent)) <= {"mlflow.source.git.commit", "lexmill.git_dirty"}
    monkeypatch.setenv("PATH", str(tmp_path))
    assert record.git_state(Path(__file__).parent) == {}
