"""Workspaces to be harmed, chance that can be repeated, and a table of what was done at the end.

`LEXMILL_FAULTS=SEED pytest tests/faults -k ...` repeats a case's choices; what runs just then depends on the machine.
What a test did to its `Case` is counted by the summary.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.e2e.conftest import Project, project
from tests.support.package_index import PackageIndex

__all__ = ["project"]

MADE = (".lexmill", "artifacts", "mlruns", "mlartifacts", "mlflow.db*", ".mlflow.db*", "reports", "metrics")
EVERY_STEP = "accelerator: cpu\nthreads: 1\ncheckpoint_seconds: 0\n"
PROPERTY = "fault"


@dataclass(frozen=True)
class Case:
    """One workspace to be harmed, beside the undisturbed one that it was copied from.

    Attributes:
        dice: this case's own, from the seed that a failing test shows.
        done: what was done to it, one entry each; for the table.
    """

    undisturbed: Project
    project: Project
    dice: random.Random
    done: list[str] = field(default_factory=list)

    @property
    def root(self) -> Path:
        return self.project.root

    def did(self, what: str, struck: object = True) -> None:
        """Count it, unless it came too late."""
        if struck:
            self.done.append(what)


def begin(request: pytest.FixtureRequest, undisturbed: Project, project: Project) -> Iterator[Case]:
    """A case on a workspace with a checkpoint at every step; hands what was done to the report."""
    seed = os.environ.get("LEXMILL_FAULTS") or str(random.SystemRandom().randrange(10**6))
    print(f"LEXMILL_FAULTS={seed}")
    Path(project.environment["LEXMILL_EXECUTION"]).write_text(EVERY_STEP)
    case = Case(undisturbed, project, random.Random(f"{seed} {request.node.name}"))
    yield case
    request.node.user_properties += [(PROPERTY, one) for one in case.done]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Put what was done into the last report of a test, with the outcome of its call."""
    made = yield
    report = made.get_result()  # type: ignore[attr-defined]  # pluggy's result
    if report.when == "call":
        item.stash[_PASSED] = report.passed
    elif report.when == "teardown" and _PASSED in item.stash:
        done = [text for key, text in item.user_properties if key == PROPERTY]
        if not done and "case" not in item.fixturenames and "finished" not in item.fixturenames:
            done = [item.originalname.removeprefix("test_").replace("_", " ")]  # type: ignore[attr-defined]
        report.user_properties = [(PROPERTY, (str(text), item.stash[_PASSED])) for text in done]


_PASSED = pytest.StashKey[bool]()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the counts of docs/reliability.md."""
    if config.option.markexpr != "torture":
        return
    tried: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            for key, value in getattr(report, "user_properties", ()):
                if key == PROPERTY and isinstance(value, tuple):
                    what, passed = value
                    tried[what] += 1
                    right[what] += passed
    if tried:
        terminalreporter.section("faults")
        for what in sorted(tried):
            terminalreporter.write_line(f"| {what} | {right[what]} of {tried[what]} |")
        terminalreporter.write_line(f"| all | {right.total()} of {tried.total()} |")


def copied(project: Project, root: Path, index: PackageIndex, ignore: tuple[str, ...] = ()) -> Project:
    """A copy of a workspace that fetches from the same index."""
    shutil.copytree(project.root, root, symlinks=True, ignore=shutil.ignore_patterns(*ignore))
    return Project(root, index.environment())


@pytest.fixture
def emptied(
    request: pytest.FixtureRequest, project: Project, tmp_path: Path, package_index: tuple[PackageIndex, list[str]]
) -> Iterator[Case]:
    """The smoke workspace as it was before its first run."""
    copy = copied(project, tmp_path / "a project", package_index[0], (*MADE, "cache", "dvc.lock"))
    assert not (copy.root / ".dvc" / "cache").exists()
    yield from begin(request, project, copy)


@pytest.fixture
def finished(
    request: pytest.FixtureRequest, project: Project, tmp_path: Path, package_index: tuple[PackageIndex, list[str]]
) -> Iterator[Case]:
    """The smoke workspace after its run."""
    yield from begin(request, project, copied(project, tmp_path / "a project", package_index[0]))
