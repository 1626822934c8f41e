"""Habits that a machine can hold: docstrings name arguments that exist, text is UTF-8 in any locale, no idle keys."""

from __future__ import annotations

import ast
import dataclasses
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lexmill.compute.execution import Execution
from lexmill.params import Params

ROOT = Path(__file__).parent.parent
MODULES = sorted([*(ROOT / "pipeline").rglob("*.py"), *(ROOT / "flows").glob("*.py")])
TREES = {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in MODULES}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def arguments(function: Function) -> set[str]:
    given = function.args
    return {one.arg for one in [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg] if one}


def fields(cls: ast.ClassDef) -> set[str]:
    """What a class is made with: the arguments of `__init__`, or a dataclass's fields."""
    made = {one.target.id for one in cls.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)}
    inits = [one for one in cls.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"]
    return made.union(*map(arguments, inits))


def documented(docstring: str) -> set[str]:
    """The names of an `Args:` section (`a, b: what`); lines that go on are indented deeper."""
    section = re.search(r"^( *)Args:\n((?:\1 +.*\n?|\n)+)", docstring, re.MULTILINE)
    if section is None:
        return set()
    lines = [line for line in section[2].split("\n") if line.strip()]
    indent = min(len(line) - len(line.lstrip()) for line in lines)
    heads = [line.strip().partition(":")[0] for line in lines if len(line) - len(line.lstrip()) == indent]
    return {name.strip(" `*") for head in heads for name in head.split(",")}


def idle_words(module: str, tree: ast.Module) -> Iterator[str]:
    """What `Args:` sections name that is no argument."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            known = fields(node) if isinstance(node, ast.ClassDef) else arguments(node)
            for name in sorted(documented(ast.get_docstring(node) or "") - known):
                yield f"{module}:{node.lineno} {node.name}: {name}"


def test_a_docstring_speaks_of_arguments_that_are_there() -> None:
    nodes = [node for tree in TREES.values() for node in ast.walk(tree)]
    message = [documented(ast.get_docstring(n) or "") for n in nodes if isinstance(n, ast.ClassDef | ast.FunctionDef)]
    assert sum(map(len, message)) > 200, "the sections are not found"
    assert [word for module, tree in TREES.items() for word in idle_words(module, tree)] == []
    stale = 'def f(a, b):\n    """Do it.\n\n    Args:\n        a, c: two.\n            more: of c\n    """'
    assert list(idle_words("m", ast.parse(stale))) == ["m:1 f: c"]


def opens_text(call: ast.Call) -> bool:
    """Whether a call opens, reads or writes a file as text."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name in ("read_text", "write_text"):
        # `storage.write_text` and the like are ours and always write UTF-8.
        return isinstance(call.func, ast.Attribute) and getattr(call.func.value, "id", "") != "storage"
    if name != "open" or (isinstance(call.func, ast.Attribute) and getattr(call.func.value, "id", "") == "tarfile"):
        return False
    modes = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    built_in = isinstance(call.func, ast.Name)
    mode = next((text for text in modes if re.fullmatch(r"[rwaxbt+]{1,3}", text)), "r" if built_in else "b")
    return "b" not in mode


def test_text_is_utf8_whatever_the_locale() -> None:
    calls = [
        (f"{module}:{node.lineno}", any(word.arg == "encoding" for word in node.keywords))
        for module, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and opens_text(node)
    ]
    assert len(calls) > 10
    assert [place for place, named in calls if not named] == []
    # A child's output too: `text=True` alone decodes it as the locale says.
    words = {
        f"{module}:{node.lineno}": {word.arg for word in node.keywords}
        for module, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
    }
    assert [place for place, given in words.items() if {"text", "capture_output"} <= given] == []


def keys(cls: Any) -> Iterator[tuple[str, str]]:
    """(class, field) of a dataclass and of all dataclasses in it."""
    for name, kind in typing.get_type_hints(cls).items():
        yield cls.__name__, name
        waiting = [kind]
        while waiting:
            one = waiting.pop()
            if dataclasses.is_dataclass(one):
                yield from keys(one)
            waiting.extend(typing.get_args(one))


@pytest.mark.parametrize("root", [Params, Execution])
def test_no_key_is_accepted_and_unused(root: Any) -> None:
    read = {node.attr for tree in TREES.values() for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    read |= set(
        re.findall(r"(?:\$\{item\.|foreach: \$\{)(\w+)\}", (ROOT / "dvc.yaml").read_text(encoding="utf-8"))
    )  # by DVC
    tags = {"kind", "format", "name"}  # they choose the dataclass
    assert {f"{cls}.{name}" for cls, name in keys(root) if name not in read | tags} == set()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("autolog", "with a logger it makes two runs of one training"),
        ("MLFlowLogger", "it falls back to a file store that MLflow refuses, and an outage ends the training"),
        ("estimated_stepping_batches", "the loader's state is then silently not restored"),
        ("code_paths", "what the registry holds would be run"),
        ("reproduce", "DVC's own interface in threads can run one stage twice: its command line runs, the other reads"),
        ("ModelCheckpoint", "it leaves a stale -v1 file beside a checkpoint, and a resume takes it up"),
        ("save_hyperparameters", "objects in a checkpoint, which then loads only by running what it holds"),
        ("FSDPStrategy", "it refuses a CPU, so that no test could try it"),
    ],
)
def test_what_breaks_quietly_is_not_used(name: str, why: str) -> None:
    used = {
        f"{module}:{node.lineno}"
        for module, tree in TREES.items()
        for node in ast.walk(tree)
        if (isinstance(node, ast.Name) and node.id == name)
        or (isinstance(node, ast.Attribute) and node.attr == name)
        or (isinstance(node, ast.keyword) and node.arg == name)
    }
    assert used == set(), why


def test_files_are_small() -> None:
    """What grows beyond 400 lines does more than one thing."""
    lines = {path: path.read_text(encoding="utf-8").count("\n") for path in MODULES}
    assert {path.relative_to(ROOT).as_posix(): count for path, count in lines.items() if count > 400} == {}
    assert max(lines.values()) > 300, "lines are not counted"


def module_name(path: str) -> str:
    """`lexmill.config.compose` of `pipeline/lexmill/config/compose.py`."""
    return path.removeprefix("pipeline/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imports(tree: ast.Module) -> set[str]:
    """What a module imports, in its functions too: modules, and what is taken from them."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, "a relative import is not followed here"
            found |= {node.module, *(f"{node.module}.{one.name}" for one in node.names)}
    return found


def composes(name: str) -> bool:
    return name.partition(".")[0] in ("hydra", "omegaconf") or name == "lexmill.config.compose"


def test_no_stage_composes() -> None:
    """It would lose what `dvc exp run -S` set: a stage reads params.yaml, whoever composed that."""
    known = {module_name(path): imports(tree) for path, tree in TREES.items()}
    assert any(map(composes, known["lexmill.config.compose"]))
    begun = {name for name in known if name.startswith("lexmill.stages.")}
    reached, waiting = set(begun), sorted(begun)
    while waiting:
        new = (known[waiting.pop()] & known.keys()) - reached
        reached |= new
        waiting += new
    assert len(begun) > 10
    assert len(reached) > 100, "imports are not followed"
    assert {name: found for name in sorted(reached) if (found := set(filter(composes, known[name])))} == {}


SECRET = re.compile(
    r"(?:^|_)(?:password|passwd|secrets?|token(?!_id)|credentials?|auth|(?:api|access|private)_?key)(?:_|$)"
)


def spoken(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Each key of nested data with each text below it (empty: none)."""
    yield key, ""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from spoken(inner, str(name))
    elif isinstance(value, list):
        for inner in value:
            yield from spoken(inner, key)
    elif isinstance(value, str):
        yield key, value


def test_conf_holds_no_secret_and_asks_for_none() -> None:
    """What conf/ holds or looks up is written out into params.yaml, which git tracks."""

    def errors(text: str) -> list[tuple[str, str]]:
        return [
            (key, value)
            for key, value in spoken(yaml.safe_load(text))
            if SECRET.search(key.lower()) or "${oc." in value or re.search(r"://[^/@\s]*:[^/@\s]*@", value)
        ]

    files = sorted((ROOT / "conf").rglob("*.yaml"))
    assert len(files) > 30
    assert {str(path): found for path in files if (found := errors(path.read_text(encoding="utf-8")))} == {}
    for wrong in ("a: {hub_token: x}", "AWS_SECRET_KEY: x", "a: ['${oc.env:HOME}']", "uri: http://me:word@server/"):
        assert errors(wrong), wrong
    assert not errors("{max_tokens: 3, pad_token_id: 0, tokenizer: x, author: y, uri: 'http://server:80/a@b'}")
