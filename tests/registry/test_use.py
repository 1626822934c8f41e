"""The registered champions, as the command line uses them."""

import dataclasses
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lexmill.base.errors import UserError
from lexmill.compute.execution import Execution
from lexmill.decoding import predictor
from lexmill.kinds.translator.command import translated
from lexmill.kinds.translator.predict import Predictor, Translation
from lexmill.params import Params
from lexmill.registry import package, use
from lexmill.registry.loader import load_package

from .conftest import make, publish_model


@pytest.fixture
def here(published: tuple[Path, list[str]], tmp_path: Path) -> Path:
    """A copy of the published workspace; the store's files lie where they were published."""
    where = tmp_path / "copy"
    shutil.copytree(published[0], where)
    return where


def test_each_kind_is_used_from_its_champion(here: Path, params: Params, execution: Execution) -> None:
    def opened(kind: str, name: str | None = None) -> predictor.Predictor:
        return use.open_model(name, kind, params, execution, here)

    (text,) = opened("language_model").predict(["ROMEO"], {"max_tokens": 4})
    assert isinstance(text, str)
    (answer,) = opened("classifier", "tickets").predict(["my bill"])
    assert answer["label"] in ("billing", "other")
    lines = ["Good day", "", "Bye"]
    translations = opened("translator").predict(lines)
    assert [bool(text) for text in translations] == [True, False, True]
    assert translations == load_package(here / "artifacts/packages/en_de").predict(lines)


def test_lines_are_read_as_they_are_needed_and_answered_one_by_one(
    here: Path, params: Params, execution: Execution
) -> None:
    model = use.open_model(None, "translator", params, execution, here)
    taken = []

    def lines() -> Iterator[str]:
        for i in range(150):
            taken.append(i)
            yield "" if i % 3 else "ab"

    answers = translated(model, lines())
    assert taken == []
    next(answers)
    assert len(taken) == 64
    rest = list(answers)
    assert len(rest) == 149
    assert all("\n" not in text for text in rest)
    assert [i for i, text in enumerate(rest, start=1) if text] == [i for i in range(1, 150) if i % 3 == 0]


def test_the_champion_is_the_registered_one_not_what_lies_in_the_workspace(
    params: Params, root: Path, execution: Execution
) -> None:
    publish_model(params, root, "en_de", 0.9, seed=0)
    champion = load_package(root / "artifacts/packages/en_de").predict(["Good day"])
    publish_model(params, root, "en_de", 0.1, seed=1)
    newest = load_package(root / "artifacts/packages/en_de").predict(["Good day"])
    assert newest != champion
    assert use.open_model(None, "translator", params, execution, root).predict(["Good day"]) == champion
    copy = root / ".lexmill" / "champions" / "en_de"
    assert package.verify(copy)["name"] == "en_de"
    before = copy.stat().st_mtime_ns
    shutil.rmtree(root / "artifacts")  # and the workspace's own is not needed
    assert use.open_model(None, "translator", params, execution, root).predict(["Good day"]) == champion
    assert copy.stat().st_mtime_ns == before  # brought once


def test_a_copy_that_is_not_what_was_registered_is_refused(params: Params, root: Path, execution: Execution) -> None:
    publish_model(params, root, "gpt", 0.9, seed=0)
    shutil.rmtree(root / "artifacts")
    (stored,) = root.glob("mlruns/*/models/*/artifacts/data/gpt/card.md")
    stored.write_text("changed in the store")
    with pytest.raises(UserError, match="changed after it was made"):
        use.open_model(None, "language_model", params, execution, root)
    assert not (root / ".lexmill" / "champions" / "gpt").exists()


def test_what_to_do_when_there_is_no_champion(params: Params, tmp_path: Path, execution: Execution) -> None:
    with pytest.raises(UserError, match="no registered champion yet; `lexmill run` trains and registers it"):
        use.open_model(None, "translator", params, execution, tmp_path)
    make(params, tmp_path, "en_de")
    package.write(params, "en_de", tmp_path)
    with pytest.raises(UserError, match="no registered champion yet; `lexmill publish` registers it"):
        use.open_model(None, "translator", params, execution, tmp_path)


@pytest.mark.parametrize(("kind", "words"), [("encoder", "an encoder"), ("", "a model that was not made here")])
def test_a_champion_of_another_kind_is_refused(
    kind: str, words: str, here: Path, params: Params, execution: Execution
) -> None:
    found = use.lookup.champion(execution.tracking_uri, "en_de", here)
    assert found is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(use.lookup, "champion", lambda *_: replace(found, kind=kind))
        with pytest.raises(UserError, match=rf"the champion of 'en_de' \(version .\) is {words}, not a translator"):
            use.open_model("en_de", "translator", params, execution, here)


def test_which_model_is_meant(params: Params) -> None:
    assert use.choose(None, "translator", params) == "en_de"
    with pytest.raises(UserError, match="has no translator 'en_fe', did you mean 'en_de'"):
        use.choose("en_fe", "translator", params)
    with pytest.raises(UserError, match="has no translator 'gpt'; known: en_de"):
        use.choose("gpt", "translator", params)
    two = dataclasses.replace(params, models={**params.models, "en_fr": params.models["en_de"]})
    with pytest.raises(UserError, match="several translators; say which with --model: en_de, en_fr"):
        use.choose(None, "translator", two)
    none = dataclasses.replace(params, models={})
    with pytest.raises(UserError, match=r"params\.yaml has no translator;"):
        use.choose(None, "translator", none)


_QUICK = """
import sys
sys.path.insert(0, sys.argv[2])
from dataclasses import replace
from pathlib import Path
from lexmill.compute.execution import Execution
from lexmill.params import parse
from lexmill.registry import use
from tests.registry.plain import plain_params
model = use.open_model(None, "language_model", parse(plain_params()), Execution(), Path(sys.argv[1]))
model.predict(["a"], {"max_tokens": 1})
print(sorted(m for m in ("mlflow", "transformers", "pandas", "sqlalchemy") if m in sys.modules))
"""


def test_a_local_champion_is_used_without_importing_mlflow(here: Path) -> None:
    command = [sys.executable, "-c", _QUICK, str(here), str(Path(__file__).parents[2])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_line_break_in_a_translation_shifts_no_later_line() -> None:
    class Talkative(Predictor):
        def __init__(self) -> None:
            """It needs no network."""

        def translations(self, texts: Sequence[str], params: Mapping[str, Any], **_: object) -> list[list[Translation]]:
            return [[Translation(f"{line}\nand more {params.get('beam_size', '')}", 0.0)] for line in texts]

    assert list(translated(Talkative(), ["a", "b"])) == ["a and more ", "b and more "]
    assert list(translated(Talkative(), ["a"], {"beam_size": 7})) == ["a and more 7"]
