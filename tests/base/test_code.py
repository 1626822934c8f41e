"""Digests of code by what it says: what they see, what they do not, and which of them a change reaches."""

from __future__ import annotations

import ast
import gc
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lexmill.base import code_history, layout, storage, syntax
from lexmill.base.code import EXEMPT, Code, Digests, digests
from lexmill.base.errors import UserError
from lexmill.models import families

PACKAGE = Path(__file__).resolve().parents[2] / "pipeline" / "lexmill"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package, to be changed."""
    return Path(shutil.copytree(PACKAGE, tmp_path / "lexmill", ignore=shutil.ignore_patterns("__pycache__")))


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def code_json(package: Path) -> Digests:
    return digests(Code(package).closures())


def changed(before: Digests, after: Digests) -> set[str]:
    """The dotted keys whose digests differ."""
    found = set()
    for key in before.keys() | after.keys():
        one, other = before.get(key), after.get(key)
        if isinstance(one, dict) and isinstance(other, dict):
            found |= {f"{key}.{inside}" for inside in changed(one, other)}
        elif one != other:
            found.add(key)
    return found


def digest(text: str) -> str:
    return syntax.read(text, "lexmill.one").digest


# ---------------------------------------------------------------- what a file says

WRITTEN = """
from typing import Any

def f(x: Any) -> Any:
    return x + 1

class A:
    def g(self):
        pass
"""


@pytest.mark.parametrize(
    "same",
    [
        "'''What it is.'''\n\n\n" + WRITTEN,
        WRITTEN.replace("return x + 1", "'''Adds.'''\n    # why\n    return (x +\n            1)  # one"),
        WRITTEN.replace("pass", "'''A docstring.'''"),
        WRITTEN.replace("class A:", "class A:\n    '''Another.'''\n"),
        WRITTEN.replace("def f(x: Any) -> Any:", "def f(\n    x: Any,\n) -> Any:"),
        WRITTEN + "'''A word on what stands above.'''\n",
        WRITTEN.replace("class A", "if TYPE_CHECKING:\n    import torch\n\nclass A"),
    ],
)
def test_words_for_readers_and_layout_change_nothing(same: str) -> None:
    assert digest(same) == digest(WRITTEN)


@pytest.mark.parametrize(
    "other",
    [
        WRITTEN.replace("x + 1", "x + 2"),
        WRITTEN.replace("x + 1", "x + 1.0"),
        WRITTEN.replace("x + 1", "x - 1"),
        WRITTEN.replace("x + 1", "'x + 1'"),
        WRITTEN.replace("return x + 1", "return None"),
        WRITTEN.replace("        pass", "        return None"),
        WRITTEN.replace("class A", "class B"),
        WRITTEN.replace("def g(self)", "def g(self, *, k)"),
        WRITTEN.replace("    def g", "    @property\n    def g"),
        "import math\n" + WRITTEN,
    ],
)
def test_another_meaning_is_another_digest(other: str) -> None:
    assert digest(other) != digest(WRITTEN)


def test_what_differs_in_small_things_differs() -> None:
    texts = [
        "def f(*, a, b=None): ...",
        "def f(*, a=None, b): ...",
        "def f(a, b=None): ...",
        "def f(a, /, b=None): ...",
        "x = {**a}",
        "x = {None: a}",
        "x = [a]",
        "x = a",
        "x = ()",
        "x = []",
        "x = f'{a}b'",
        "x = f'{a!r}b'",
        "x = f'{a:b}'",
        "x = f'{a}' 'b' f'{c}'",
        "x = b'a'",
        "x = 'a'",
        "if x:\n    y()",
        "if x:\n    pass\nelse:\n    y()",
        "class A: x = 1",
        "class A: pass\nx = 1",
        "from . import a",
        "from .. import a",
        "from b import a",
        "import a",
        "async def f(): ...",
        "def f(): ...",
    ]
    assert len({digest(text) for text in texts}) == len(texts)


def test_the_text_of_a_tree_names_only_fields_that_are_used() -> None:
    """So that it is the same on a Python whose syntax trees have more fields."""
    read = syntax.read("def f(x, *, y=None):\n    return f'{x}' 'a' f'{y!r:>{x}} é'\n", "lexmill.one")
    assert read.text == (
        "FunctionDef(name='f',args=arguments(args=[arg(arg='x')],kwonlyargs=[arg(arg='y')],kw_defaults=[None]),"
        "body=[Return(value=JoinedStr(values=[FormattedValue(value=Name(x),conversion=-1),'a',"
        "FormattedValue(value=Name(y),conversion=114,format_spec=JoinedStr(values=['>',"
        "FormattedValue(value=Name(x),conversion=-1)])),' \\xe9']))])"
    )


@pytest.mark.parametrize("pieces", [["ab"], ["a", "b"], ["", "a", "", "b", ""]])
def test_an_f_string_is_the_same_however_its_plain_text_is_cut(pieces: list[str]) -> None:
    """Versions of Python differ in it."""
    made = ast.JoinedStr([ast.Constant(piece) for piece in pieces])
    assert syntax._text(made) == "JoinedStr(values=['ab'])"


def test_imports_are_seen_wherever_they_are() -> None:
    text = """
import lexmill.a
from lexmill.b import c
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    import lexmill.never
def f():
    try:
        with x:
            from lexmill import late
    except ValueError:
        import lexmill.in_handler
    match x:
        case 1:
            import lexmill.in_case
    from . import beside
    from ..up import above
"""
    found = syntax.read(text, "lexmill.here.module").imports
    assert {name for name in found if name.startswith("lexmill.")} == {
        "lexmill.a",
        "lexmill.b",
        "lexmill.b.c",
        "lexmill.late",
        "lexmill.in_handler",
        "lexmill.in_case",
        "lexmill.here",
        "lexmill.here.beside",
        "lexmill.up",
        "lexmill.up.above",
    }


# ---------------------------------------------------------------- closures


def test_a_closure_has_late_imports_the_packages_above_and_what_is_loaded_by_name() -> None:
    files = Code().stage("train", family="llama").files
    assert "lexmill/training/loop.py" in files  # by an import in `main`
    assert "lexmill/models/__init__.py" in files  # above all models, and it has code
    assert "lexmill/training/__init__.py" not in files  # a docstring alone
    assert {"lexmill/models/llama/model.py", "lexmill/models/llama/hugging_face.py"} <= files.keys()
    assert not [path for path in files if path.startswith(("lexmill/models/gpt/", "lexmill/models/lstm/"))]
    assert not EXEMPT.keys() & files.keys()


def test_a_template_is_code_of_the_module_that_names_it(package: Path) -> None:
    before = code_json(package)
    edit(package / "report" / "style.css", "{", "{ ")
    for kind in Code().options("kind"):
        assert f"lexmill/kinds/{kind}/section.html.j2" in Code().stage("report", kind=kind).files
    assert changed(before, code_json(package)) == {f"report.{kind}" for kind in Code().options("kind")}
    before = code_json(package)
    edit(package / "kinds" / "translator" / "section.html.j2", "<", " <")
    assert changed(before, code_json(package)) == {"report.translator"}


def test_a_file_can_be_named_by_its_path_for_each_family(package: Path) -> None:
    (package / "models" / "lstm" / "card.md.j2").write_text("A card.\n")
    edit(
        package / "stages" / "fetch.py", "\ndef main", "\nLOADS = ('lexmill/models/{family}/card.md.j2',)\n\n\ndef main"
    )
    code = Code(package)
    assert "lexmill/models/lstm/card.md.j2" in code.stage("fetch", family="lstm").files
    assert "lexmill/models/lstm/card.md.j2" not in code.stage("fetch", family="gpt").files
    assert set(code_json(package)["fetch"]) == set(code.options("family"))


def test_kinds_are_folders_and_come_before_families(package: Path) -> None:
    shutil.rmtree(package / "kinds")
    for kind in ("language_model", "tagger", "common"):
        (package / "kinds" / kind).mkdir(parents=True)
        (package / "kinds" / kind / "__init__.py").write_text(f"name = '{kind}'\n")
        (package / "kinds" / kind / "task.py").write_text("loss = 1\n")
    (package / "stages" / "train.py").write_text(
        "LOADS = ('lexmill.kinds.{kind}.task',)\nfrom lexmill.models import build\n"
    )
    before = code_json(package)
    train = before["train"]
    assert isinstance(train, dict)
    assert sorted(train) == ["language_model", "tagger"]
    assert sorted(train["tagger"]) == families()
    (package / "kinds" / "tagger" / "task.py").write_text("loss = 2\n")
    assert changed(before, code_json(package)) == {f"train.tagger.{family}" for family in train["tagger"]}


def test_a_module_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"there is no module lexmill\.stages\.nothing"):
        Code().stage("nothing")


def test_a_file_that_is_not_python_is_named_with_its_line(package: Path) -> None:
    (package / "training" / "loop.py").write_text("x = 1\ndef f(:\n")
    with pytest.raises(UserError, match=r"loop\.py:2: not Python: "):
        Code(package).closures()


# ---------------------------------------------------------------- which keys a change reaches


def test_words_and_new_files_leave_code_json_as_it_is(package: Path, tmp_path: Path) -> None:
    storage.write_json(tmp_path / "before.json", code_json(package))
    loop = package / "training" / "loop.py"
    loop.write_text("# A comment.\n" + loop.read_text(encoding="utf-8") + "\n\n# Another.\n", encoding="utf-8")
    edit(package / "models" / "gpt" / "model.py", '"""', '"""Other words. ')
    (package / "training" / "brand_new.py").write_text("x = 1\n")
    (package / "models" / "common" / "brand_new.py").write_text("x = 1\n")
    storage.write_json(tmp_path / "after.json", code_json(package))
    assert (tmp_path / "after.json").read_bytes() == (tmp_path / "before.json").read_bytes()


def test_a_familys_equations_are_its_own(package: Path) -> None:
    before = code_json(package)
    edit(package / "models" / "lstm" / "model.py", "return 28 * ", "return 29 * ")
    found = changed(before, code_json(package))
    assert {"train.language_model.lstm", "evaluate.language_model.lstm"} <= found
    assert all(key.endswith(".lstm") for key in found)
    assert not [key for key in found if key.startswith(("baseline", "report", "checkpoint"))]


def test_a_new_family_changes_no_other(package: Path) -> None:
    before = code_json(package)
    shutil.copytree(package / "models" / "lstm", package / "models" / "newcomer")
    found = changed(before, code_json(package))
    assert "train.language_model.newcomer" in found
    assert all(key.endswith(".newcomer") for key in found)


def test_a_new_kind_changes_no_other(package: Path) -> None:
    before = code_json(package)
    shutil.copytree(package / "kinds" / "translator", package / "kinds" / "summarizer")
    found = changed(before, code_json(package))
    assert {"train.summarizer", "evaluate.summarizer", "baseline.summarizer", "register.summarizer"} <= found
    assert all(key.split(".")[1] == "summarizer" for key in found)


def test_a_kinds_code_is_its_own(package: Path) -> None:
    before = code_json(package)
    for name in ("task", "baselines", "evaluate", "__init__"):
        path = package / "kinds" / "classifier" / f"{name}.py"
        path.write_text(path.read_text(encoding="utf-8") + "\n\nchanged = 1\n", encoding="utf-8")
    found = {key.partition(".")[0] + "." + key.split(".")[1] for key in changed(before, code_json(package))}
    assert found == {
        f"{stage}.classifier" for stage in ("train", "evaluate", "baseline", "register", "report", "translate")
    }


def test_sizes_of_a_family_are_code_of_its_models_though_what_finds_them_is_exempt(package: Path) -> None:
    before = code_json(package)
    path = package / "models" / "bert" / "shape.py"
    path.write_text(path.read_text(encoding="utf-8") + "\n\nchanged = 1\n", encoding="utf-8")
    found = changed(before, code_json(package))
    assert {key.partition(".")[0] for key in found} == {"train", "evaluate", "register", "translate"}
    assert all(key.endswith(".bert") for key in found)


def test_shared_code_reaches_all_that_import_it_and_no_others(package: Path) -> None:
    before = code_json(package)
    edit(package / "training" / "stopping.py", "\n\nclass ", "\n\nchanged = 1\n\n\nclass ")
    trainings = {"train"}
    assert {key.partition(".")[0] for key in changed(before, code_json(package))} == trainings


def test_the_whole_package_is_read_without_importing_it() -> None:
    script = "import sys; from lexmill.base.code import Code; Code().closures(); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(PACKAGE.parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stdout.split())
    assert not loaded & {"torch", "numpy", "yaml", "dvc"}
    assert "lexmill.params" not in loaded


# ---------------------------------------------------------------- what changed


def test_the_definition_that_changed_is_named(package: Path, tmp_path: Path) -> None:
    old = Code(package).closures()
    code_history.remember(old, tmp_path)
    model = package / "models" / "lstm" / "model.py"
    edit(model, "return 28 * ", "return 29 * ")
    key = ("train", "language_model", "lstm")
    now = Code(package).closures()[key]
    line = "lexmill/models/lstm/model.py: Layer.gradient_bytes"
    assert code_history.difference(old[key].digest, now, tmp_path) == line
    edit(package / "training" / "seeding.py", "\n\ndef ", "\n\nLIMIT = 3\n\n\ndef ")
    now = Code(package).closures()[key]
    assert code_history.difference(old[key].digest, now, tmp_path) == f"{line}, lexmill/training/seeding.py: LIMIT"
    assert code_history.difference("0" * 64, now, tmp_path) == ""


def test_the_parts_of_the_last_states_are_kept(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_history, "KEPT", 2)
    stage = package / "stages" / "fetch.py"
    states = []
    for number in range(4):
        edit(stage, "\ndef main", f"\nx = {number}\n\ndef main")
        states.append(Code(package).closures())
        storage.write_json(tmp_path / layout.CODE, digests(states[-1]))
        assert not code_history.remembers(tmp_path)
        code_history.remember(states[-1], tmp_path)
        assert code_history.remembers(tmp_path)
    assert len(list((tmp_path / code_history.FOLDER).iterdir())) == 2
    now = states[-1]["fetch",]
    assert code_history.difference(states[-2]["fetch",].digest, now, tmp_path) == "lexmill/stages/fetch.py: x"
    assert code_history.difference(states[0]["fetch",].digest, now, tmp_path) == ""


def test_threads_may_read_at_once() -> None:
    """CPython 3.11 keeps one count of the depth for all threads, which take turns while it collects garbage."""
    text = "def f(a):\n    return [a, {1: (2, [3, (4,)])}]\n" * 200

    def turn(_phase: str, _info: dict[str, int]) -> None:
        time.sleep(0)

    before = gc.get_threshold()
    gc.callbacks.append(turn)  # as Dask's workers have one
    gc.set_threshold(20)
    try:
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda i: syntax.read(f"{text}# {i}\n", "m").digest, range(12)))
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(turn)
    assert len(set(found)) == 1
