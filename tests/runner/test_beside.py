"""What a worktree shares with the workspace it came from: the store and the turn to publish, not its checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest

from lexmill.base import workspace
from lexmill.base.errors import RetryableError
from lexmill.compute.execution import load_execution


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    monkeypatch.delenv("LEXMILL_EXECUTION", raising=False)
    main = tmp_path / "main"
    beside = main / ".lexmill" / "worktrees" / "aside"
    for folder in (main, beside):
        (folder / "conf" / "execution").mkdir(parents=True)
        (folder / "conf" / "execution" / "local.yaml").write_text("{}\n")
    workspace.mark_worktree(beside, "aside", main)
    return main, beside


def test_one_store_and_checkpoints_apart(folders: tuple[Path, Path]) -> None:
    main, beside = folders
    assert workspace.main_root(main) is None
    assert workspace.main_root(beside) == main
    assert load_execution(main).tracking_uri == "sqlite:///mlflow.db"
    assert load_execution(beside).tracking_uri == f"sqlite:///{main}/mlflow.db"
    assert load_execution(beside).checkpoint_root == ".lexmill/checkpoints"
    (beside / "conf" / "execution" / "local.yaml").write_text("tracking_uri: http://127.0.0.1:5000\n")
    assert load_execution(beside).tracking_uri == "http://127.0.0.1:5000"


def test_one_publication_at_a_time(folders: tuple[Path, Path]) -> None:
    main, beside = folders
    with (
        workspace.publishing(main),
        pytest.raises(RetryableError, match=r"the registry is in use by publish \(process \d+"),
        workspace.publishing(beside, wait_seconds=0),
    ):
        pass
    with workspace.publishing(beside), workspace.run_lock(root=main), workspace.run_lock(root=beside):
        pass
