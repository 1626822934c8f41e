"""A folder with params.yaml and registries on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lexmill import params
from lexmill.nightly.refresh import Look, refresh
from tests.support.fetching import registries
from tests.support.package_index import PackageIndex
from tests.support.small_project import whole


class Workspace:
    """params.yaml of corpora by their sources; `refresh` looks at them."""

    def __init__(self, root: Path, index: PackageIndex) -> None:
        self.root, self.index = root, index
        self.corpora: dict[str, Any] = {}
        (root / "conf/execution").mkdir(parents=True)
        (root / "conf/execution/local.yaml").write_text("{}\n")

    def corpus(self, name: str, /, **source: Any) -> None:
        self.corpora[name] = {"kind": "text", "source": source, "reader": {"format": "text"}}
        data = {"experiment": "x", "data_seed": 1, "training_seed": 1, "corpora": self.corpora}
        (self.root / "params.yaml").write_text(yaml.safe_dump(whole(data), sort_keys=False))

    @property
    def params(self) -> params.Params:
        return params.load(self.root / "params.yaml")

    @property
    def lock(self) -> dict[str, Any]:
        return dict(yaml.safe_load((self.root / "sources.lock.yaml").read_text())["corpora"])

    def refresh(self, *names: str, dry_run: bool = False) -> list[Look]:
        return refresh(self.params, self.root, names, dry_run=dry_run)


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    with registries(tmp_path, monkeypatch) as index:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("PIP_RETRIES", "1")
        monkeypatch.delenv("LEXMILL_EXECUTION", raising=False)
        yield Workspace(tmp_path, index)
