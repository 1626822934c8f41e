"""A prepared corpus of entities."""

from __future__ import annotations

from pathlib import Path

import pytest

from lexmill.stages import fetch, prepare
from tests.kinds.tagger.made_project import conll, write_params


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEXMILL_EXECUTION", "execution.yaml")
    Path("execution.yaml").write_text("threads: 1\n", encoding="utf-8")
    Path("xavier.yaml").write_text("name: xavier\nembedding_std: 0.0\n", encoding="utf-8")
    for name, count, seed in (("train", 90, 0), ("dev", 20, 1), ("test", 30, 2), ("hard", 10, 3)):
        Path(f"{name}.conll").write_text(conll(count, seed), encoding="utf-8")
    write_params("crf", "birnn")
    fetch.main("names")
    prepare.main("names")
    return tmp_path
