"""The dependencies of a stage as resolved in dvc.yaml: paths of data and recipes, and digests of its code."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from lexmill.base import layout, storage
from lexmill.base.quiet import quieten


def inputs_of(stage: str, root: Path) -> list[str]:
    """Return the dependencies of a stage without params, relative to the workspace. Cost: one read of the graph."""
    from dvc.dependency.param import ParamsDependency

    root = root.resolve()
    paths = [Path(one.fs_path) for one in _dependencies(stage, root) if not isinstance(one, ParamsDependency)]
    return sorted(path.relative_to(root).as_posix() for path in paths if path.is_relative_to(root))


def code_of(stage: str, root: Path) -> dict[str, str]:
    """Return the keys of code.json that a stage depends on, with their digests; empty without such a file."""
    from dvc.dependency.param import ParamsDependency

    root = root.resolve()
    file = str(root / layout.CODE)
    files = [one for one in _dependencies(stage, root) if isinstance(one, ParamsDependency) and one.fs_path == file]
    found = {key: value for one in files for key, value in one.read_params().items()}
    return {key: value if isinstance(value, str) else storage.fingerprint(value) for key, value in found.items()}


def makers_of(paths: Collection[str], root: Path) -> dict[str, str]:
    """Return the stage that makes each of these paths, where one does. Cost: one read of the graph."""
    quieten()
    from dvc.repo import Repo

    from lexmill.runner.graph import stage_name

    root = root.resolve()
    found = {}
    with Repo(str(root)) as repo:
        for node in repo.index.stages:
            for out in node.outs:
                path = Path(out.fs_path)
                if path.is_relative_to(root) and path.relative_to(root).as_posix() in paths:
                    found[path.relative_to(root).as_posix()] = stage_name(node, root)
    return found


def _dependencies(stage: str, root: Path) -> list[Any]:
    quieten()
    from dvc.repo import Repo

    from lexmill.runner.graph import stage_name

    with Repo(str(root)) as repo:
        (node,) = (one for one in repo.index.stages if stage_name(one, root) == stage)
        return list(node.deps)
