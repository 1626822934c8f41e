"""The paths that a stage of the graph depends on, as dvc.yaml has them resolved: data, code, recipes."""

from __future__ import annotations

from pathlib import Path

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
