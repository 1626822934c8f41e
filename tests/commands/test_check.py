"""What `lexmill check` says of a machine before anything runs on it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from lexmill.base.errors import UserErrors
from lexmill.commands import check
from tests.support.small_project import params_of


@pytest.mark.parametrize("settings", ["{}", "nodes: 1\nthreads: 1"])
def test_a_model_that_is_larger_than_the_machine_is_refused(
    settings: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A width of 16: 12 squares and 13 rows of it in the block, 16 positions, the last norm; the letters are later."""
    memory = {"SC_PHYS_PAGES": 7, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(os, "sysconf", memory.__getitem__)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LEXMILL_EXECUTION", raising=False)
    Path("params.yaml").write_text(yaml.safe_dump(params_of(4)))
    Path("conf/execution").mkdir(parents=True)
    Path("conf/execution/local.yaml").write_text(settings)
    parameters = 12 * 16**2 + 13 * 16 + (16 + 2 + 1) * 16
    assert 7 * 4096 > 8 * (parameters - 1) > 6 * 4096
    check._memory()
    memory["SC_PHYS_PAGES"] = 6
    with pytest.raises(UserErrors, match=rf"^models\.toy\.shape: {parameters:,} parameters need 0 GiB for weights"):
        check._memory()


def test_a_model_that_is_trained_elsewhere_is_not_measured_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": 1, "SC_PAGE_SIZE": 1}.__getitem__)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEXMILL_EXECUTION", "away.yaml")
    Path("params.yaml").write_text(yaml.safe_dump(params_of(4)))
    Path("away.yaml").write_text("stages: {train: {launcher: slurm}, evaluate: {launcher: slurm}}\n")
    check._memory()
