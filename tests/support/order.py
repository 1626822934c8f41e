"""Which test files a run with several workers begins with: those that last long, so that none of them comes last."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]

# The longest first; what is not named lasts seconds, and fills the gaps at the end.
LONG = (
    "services/test_shared_services.py",
    "e2e/test_smoke.py",
    "services/test_slurm.py",
    "flows/test_shards.py",
    "flows/test_pipeline.py",
)


def rank(path: Path) -> int:
    """The place of a file: in the order of LONG, then all the others alike."""
    name = path.relative_to(TESTS).as_posix()
    return LONG.index(name) if name in LONG else len(LONG)
