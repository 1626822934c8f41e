from pathlib import Path

import pytest

from tests.report.project import Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project that nothing was run in yet."""
    return Project(tmp_path)


@pytest.fixture
def demo(project: Project) -> Project:
    """A project with everything that the demo leaves."""
    return project.everything()
