"""How a run with several workers is cut, so that nothing is started twice and all workers end together.

A worker takes whole files, and the files of a group together: each worker starts its own servers. What lasts long
comes first; the rest are seconds a file, and fill the gaps at the end.
"""

from __future__ import annotations

from pathlib import Path

from xdist.scheduler import LoadFileScheduling

TESTS = Path(__file__).resolve().parents[1]

GROUPS = {
    "a Prefect server": ("flows/",),
    "a team's services": ("services/test_shared_services.py", "services/test_upgrade.py"),
    "a process that has imported Lightning": (
        "training/test_kills.py",
        "training/test_strategies.py",
        "training/test_resume",
    ),
}
# The longest first. Of those that need the whole DAG run, one begins: the others would wait for it.
LONG = (
    *GROUPS["a team's services"],
    *GROUPS["a Prefect server"],
    "e2e/test_doors.py",
    "services/test_slurm.py",
    "compute/test_torchrun.py",
    "e2e/test_smoke.py",
    "faults/test_secrets.py",
    "faults/test_surroundings.py",
    *GROUPS["a process that has imported Lightning"],
    "faults/test_each_stage.py",
    "faults/test_doors.py",
    "e2e/",
)


def _place(name: str, starts: tuple[str, ...]) -> int:
    return next((i for i, start in enumerate(starts) if name.startswith(start)), len(starts))


def rank(path: Path) -> int:
    """The place of a file: that in LONG, then all the others alike."""
    return _place(path.relative_to(TESTS).as_posix(), LONG)


class Groups(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Whole files to each worker, and the files of a group to one."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        name = file.removeprefix("tests/")
        return next((group for group, starts in GROUPS.items() if name.startswith(starts)), file)
