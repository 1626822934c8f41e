"""The plan by which several workers share the tests names files that are there, and keeps groups together."""

from __future__ import annotations

from pathlib import Path

from tests.support.order import GROUPS, LONG, TESTS, Groups, rank


def test_what_the_plan_names_is_there() -> None:
    files = [path.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py")]
    starts = {*LONG, *(start for group in GROUPS.values() for start in group)}
    assert [start for start in starts if not any(file.startswith(start) for file in files)] == []


def test_a_group_goes_to_one_worker_and_any_other_file_by_itself() -> None:
    scope = Groups.__new__(Groups)._split_scope
    assert scope("tests/flows/test_cancel.py::test_a") == scope("tests/flows/test_doors.py::test_b[x::y]")
    assert scope("tests/models/test_gpt.py::test_a") == "tests/models/test_gpt.py"


def test_long_files_come_first() -> None:
    names = ("models/test_gpt.py", "e2e/test_kill.py", "e2e/test_smoke.py", "services/test_upgrade.py", "test_dag.py")
    order = sorted((TESTS / name for name in names), key=rank)
    assert [path.name for path in order] == [Path(names[i]).name for i in (3, 2, 1, 0, 4)]
