"""What a stage of the graph depends on, as dvc.yaml has it resolved: paths of data and recipes, and its code."""

from __future__ import annotations

from pathlib import Path

from lexmill.base import layout, storage
from lexmill.base.quiet import quieten


def inputs_of(stage: str, root: Path) -> list[str]:
    """The dependencies of a stage, relative to the workspace, without params. Cost: one reading."""
    quieten()
    from dvc.dependency.param import ParamsDependency
    from dvc.repo import Repo

    from lexmill.runner.graph import stage_name

    root = root.resolve()
    with Repo(str(root)) as repo:
        (node,) = (one for one in repo.index.stages if stage_name(one, root) == stage)
        paths = [Path(one.fs_path) for one in node.deps if not isinstance(one, ParamsDependency)]
    return sorted(path.relative_to(root).as_posix() for path in paths if path.is_relative_to(root))


def code_of(stage: str, root: Path) -> dict[str, str]:
    """The keys of code.json that a stage depends on, with their digests; empty where its graph has no such file."""
    quieten()
    from dvc.dependency.param import ParamsDependency
    from dvc.repo import Repo

    from lexmill.runner.graph import stage_name

    root = root.resolve()
    with Repo(str(root)) as repo:
        (node,) = (one for one in repo.index.stages if stage_name(one, root) == stage)
        files = [
            one for one in node.deps if isinstance(one, ParamsDependency) and one.fs_path == str(root / layout.CODE)
        ]
        found = {key: value for one in files for key, value in one.read_params().items()}
    return {key: value if isinstance(value, str) else storage.fingerprint(value) for key, value in found.items()}
