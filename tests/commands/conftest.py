"""A folder with the project's own conf/, as before its first `lexmill init`."""

import shutil
from pathlib import Path

import pytest

from lexmill.commands.init.initialize import MARK

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with the project's own conf/."""
    root = tmp_path / "project"
    shutil.copytree(ROOT / "conf", root / "conf")
    config = root / "conf" / "config.yaml"
    config.write_text(config.read_text().replace(MARK, "#"))  # the checkout may hold an init's own
    return root
