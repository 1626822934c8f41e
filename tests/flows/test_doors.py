"""Plain `dvc repro`, `lexmill run` and the flow: the same bytes, the same end of a stage, and each takes up another."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lexmill import workspace
from tests.support.small_project import SmallProject

pytestmark = pytest.mark.e2e

DOORS: dict[str, tuple[str, ...]] = {
    "dvc repro": ("-m", "dvc", "repro"),
    "lexmill run": ("-m", "lexmill.cli", "run"),
    "the flow": ("-m", "flows.pipeline", "run"),
}


def files(root: Path) -> dict[str, bytes]:
    found = [path for name in ("artifacts", "metrics", "reports") for path in (root / name).rglob("*")]
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in found if path.is_file()}


@pytest.fixture(scope="module")
def through(tmp_path_factory: pytest.TempPathFactory, prefect_url: str) -> dict[str, SmallProject]:
    """A workspace for each door, run through it; two threads by setting, whatever the shell says."""
    made = {}
    for number, (door, command) in enumerate(DOORS.items()):
        project = SmallProject(tmp_path_factory.mktemp("door") / f"project {number}", threads=2)
        project.environment |= {"PREFECT_API_URL": f"{prefect_url}/api", "OMP_NUM_THREADS": str(number + 1)}
        project.run(*command)
        made[door] = project
    return made


def test_three_doors_one_result(through: dict[str, SmallProject]) -> None:
    first = through["dvc repro"]
    assert "pretrain@toy" in first.outputs()
    for door, project in through.items():
        assert project.outputs() == first.outputs(), door
        assert files(project.root) == files(first.root), door


@pytest.mark.parametrize("door", DOORS)
def test_each_finds_nothing_to_do_where_another_was(through: dict[str, SmallProject], door: str) -> None:
    for project in through.values():
        before = project.outputs()
        said = project.run(*DOORS[door])
        assert "up to date" in said or "5 stages unchanged, nothing to run" in said
        assert project.outputs() == before


@pytest.mark.parametrize(("door", "code"), [("dvc repro", 255), ("lexmill run", 2), ("the flow", 2)])
def test_a_failing_stage_leaves_its_own_code(through: dict[str, SmallProject], door: str, code: int) -> None:
    project = through[door]
    rows = project.root / "rows.txt"
    before, lock = rows.read_bytes(), (project.root / "dvc.lock").read_bytes()
    shutil.rmtree(project.root / "artifacts" / "sources")
    rows.rename(project.root / "moved.txt")
    try:
        shutil.rmtree(project.root / ".dvc" / "cache")
        said = project.run(*DOORS[door], code=code)
        assert "rows.txt" in said
        assert "Traceback" not in said
        status = workspace.read_status("fetch@rows", project.root)
        assert status is not None
        assert status[0] == 2
        assert (project.root / "dvc.lock").read_bytes() == lock
    finally:
        rows.write_bytes(before)
