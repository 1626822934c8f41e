"""Which of the programs that the tests of services start are not installed here.

python -m tests.services.missing        says so and exits with 1
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

# What stands for each Debian package of infra/test-packages.txt.
PROGRAMS = {
    "postgresql": ("postgres",),
    "slurm-wlm": ("sbatch", "slurmctld", "slurmd"),
    "munge": ("munged",),
    "chromium": ("chromium",),
}


def program(name: str) -> str | None:
    """The path of a program, also where Debian puts it off the search path."""
    folders = [Path("/usr/sbin"), *sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]
    off_path = next((str(folder / name) for folder in folders if (folder / name).is_file()), None)
    return off_path or shutil.which(name)


def missing() -> list[str]:
    """The packages that are not installed."""
    return [package for package, names in PROGRAMS.items() if not all(program(name) for name in names)]


def needs(package: str) -> pytest.MarkDecorator:
    """Mark a test of a service: left out, and said, where its package is missing."""
    return pytest.mark.skipif(package in missing(), reason=f"not tested here: apt-get install {package}")


if __name__ == "__main__":
    if absent := missing():
        print(f"not tested here, for they are not installed: apt-get install {' '.join(absent)}")
        sys.exit(1)
