"""params.yaml with anything in it: it loads, or every error is a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given

from lexmill import params
from lexmill.base.yaml_file import read_yaml
from lexmill.params.derived import PARTS, derive
from tests.fuzz.budget import fuzzed
from tests.fuzz.nasty import mutated, within_budget

ROOT = Path(__file__).resolve().parents[2]
WHOLE = (ROOT / "params.yaml").read_text(encoding="utf-8")
CHOSEN = yaml.safe_dump({key: value for key, value in yaml.safe_load(WHOLE).items() if key not in PARTS})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("params")


@fuzzed(60)
@given(text=mutated(CHOSEN))
def test_choices(text: str, folder: Path) -> None:
    path = folder / "params.yaml"
    path.write_text(text, encoding="utf-8", newline="")

    def parse() -> None:
        data = read_yaml(path)
        parsed = params.parse(data, path)
        # What is accepted can be written, hashed and named by the stages.
        assert derive(data)
        yaml.safe_dump(data, allow_unicode=True).encode()
        assert all(len(name) < 200 for part in PARTS for name in getattr(parsed, part))

    within_budget(parse)


@fuzzed(25)
@given(text=mutated(WHOLE))
def test_the_whole_file(text: str, folder: Path) -> None:
    path = folder / "params.yaml"
    path.write_text(text, encoding="utf-8", newline="")
    within_budget(lambda: params.load(path))
