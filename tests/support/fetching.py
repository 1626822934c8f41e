"""What the tests of fetch share: registries on loopback and an empty cache, a fetch that is read back and checked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lexmill.base.storage import read_json, sha256_file
from lexmill.corpora.fetching import connection
from lexmill.corpora.fetching.fetch import fetch
from lexmill.params.corpora import Source
from tests.support.package_index import PackageIndex

WRONG = "0" * 64


@contextmanager
def registries(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PackageIndex]:
    """Registries on loopback, an empty download cache, hardly any pause between tries."""
    folder = workspace / "registry"
    folder.mkdir()
    monkeypatch.setattr(connection, "FIRST_PAUSE", 0.001)
    monkeypatch.setenv("XDG_CACHE_HOME", str(workspace / "cache"))
    with PackageIndex(folder) as running:
        for name, value in running.environment().items():
            monkeypatch.setenv(name, value)
        yield running


def bring(source: Source, workspace: Path) -> dict[str, bytes]:
    """Fetch into workspace/target and read back what the manifest names; nothing else may be there."""
    target = workspace / "target"
    manifest = fetch(source, workspace, target)
    assert read_json(target / "manifest.json") == manifest
    paths = [entry["path"] for entry in manifest["files"]]
    assert paths == sorted(paths)
    found = sorted(path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file())
    assert found == sorted([*paths, "manifest.json"])
    for entry in manifest["files"]:
        path = target / entry["path"]
        assert (entry["bytes"], entry["sha256"]) == (path.stat().st_size, sha256_file(path))
    return {path: (target / path).read_bytes() for path in paths}


def nothing_left(workspace: Path) -> bool:
    """No target, no half folder, no partial download."""
    cached = list((workspace / "cache").rglob("*.part")) + list((workspace / ".lexmill").rglob("*.part"))
    return not cached and not [path for path in workspace.iterdir() if "target" in path.name]
