"""Workspaces of classifiers: on a tiny BERT, and on words."""

from __future__ import annotations

from pathlib import Path

import pytest

from lexmill.base import layout
from lexmill.stages import tokenizer
from tests.kinds.classifier.made_models import RECIPES, write_bag, write_params
from tests.support.labelled_model import FILLER, MARKS, begin, make_checkpoint, records
from tests.support.prepared import write_prepared


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    begin(tmp_path, monkeypatch)
    write_params()
    splits = {"train": records(120, 0), "valid": records(30, 1), "test": records(33, 2), "test_hard": records(12, 3)}
    write_prepared(layout.corpus("reviews"), "labelled", splits)
    make_checkpoint([*FILLER, *MARKS])
    return tmp_path


@pytest.fixture
def word_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(tmp_path, monkeypatch)
    Path("start.yaml").write_text("name: gpt2\n", encoding="utf-8")
    splits = {"train": records(120, 0), "valid": records(30, 1), "test": records(33, 2)}
    write_prepared(layout.corpus("reviews"), "labelled", splits)
    write_bag(RECIPES["multinomial"])
    tokenizer.main("words")
