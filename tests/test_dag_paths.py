"""dvc.yaml against the paths in the code: a stage declares what it reads and writes, and DVC or git keeps each output.

DVC cannot see that a stage reads a file it does not name: it would keep a stale result.
"""

import ast
import re
from collections.abc import Iterator
from typing import Any, get_type_hints

import pytest

from lexmill import kinds
from lexmill.base import layout
from lexmill.params import Params
from tests.test_dag import BODIES, FOR_ITEMS, OTHERS, ROOT, SOURCE, named, over, readers

PACKAGE = SOURCE / "lexmill"
BELOW = {  # where a stage reads and writes, besides its module and those of its kinds
    "train": [PACKAGE / "training" / "production.py"],
    "report": sorted((PACKAGE / "report").glob("*.py")),
}
CONSTANTS = {"STAGE": "train"}
NO_INPUTS = {  # read to mark what is stale, if it is there; compared with a path
    "report": {"artifacts/corpora/*", "artifacts/tokenizers/*", "artifacts/checkpoints"},
}
OUTPUTS = ("outs", "metrics", "plots")
OF_A_STAGE = re.compile(r"(artifacts|metrics|reports)\b")


def trees(stage: str) -> Iterator[ast.AST]:
    """The syntax trees of the files in which a stage reads and writes."""
    for path in [*readers(stage), *BELOW.get(stage, [])]:
        yield ast.parse(path.read_text(encoding="utf-8"))


def used(stage: str) -> set[str]:
    """The paths that the code of a stage makes by `layout`, with `*` for each name."""
    found = {"reports/index.html"} if stage == "report" else set()  # of a constant
    for tree in trees(stage):
        parents = {node.value for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "parent"}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node not in parents:
                made = getattr(layout, node.func.attr, None) if ast.unparse(node.func.value) == "layout" else None
                found |= {made(*map(name, node.args)).as_posix()} if made else set()
    return found - NO_INPUTS.get(stage, set())


def name(argument: ast.expr) -> str:
    """The name that an argument gives to a path: as written, as far as it is, else `*`."""
    if isinstance(argument, ast.Name) and argument.id in CONSTANTS:
        return CONSTANTS[argument.id]
    pieces = argument.values if isinstance(argument, ast.JoinedStr) else [argument]
    return "".join(str(piece.value) if isinstance(piece, ast.Constant) else "*" for piece in pieces)


def declared(stage: str, *sections: str) -> set[str]:
    """The paths of a stage in dvc.yaml, with `*` for each name."""
    entries = [entry for section in sections for entry in BODIES[stage].get(section, [])]
    written = [path for entry in entries for path in (entry if isinstance(entry, dict) else [entry])]
    return {re.sub(r"\$\{[\w.]+\}", "*", one) for path in written for one in filled(path)}


def filled(path: str) -> Iterator[str]:
    """A path of dvc.yaml for each form of what follows from a model."""
    if path == "${item.data}":
        entry = {"data": {"corpus": "*", "tokenizer": "*", "train": "*"}}
        yield from {kind.inputs(entry).data for kind in kinds.every()}
    elif path.startswith("${item.data}/"):
        yield path.replace("${item.data}", layout.tokens("*", "*").as_posix())  # a corpus is named as such too
    elif path == "${item.reads}":
        yield layout.tokenizer("*").as_posix()  # else the corpus once more
    elif path not in ("${item.start}", "${item.teacher}"):
        yield re.sub(r"(?<=tokens/)\w+-bpe", "*-*", path)  # of the mixture that stands for all


def within(path: str, others: set[str]) -> bool:
    """Whether a path is one of the others, or inside one, or holds one."""
    return any(f"{path}/".startswith(f"{other}/") or f"{other}/".startswith(f"{path}/") for other in others)


@pytest.mark.parametrize("stage", OTHERS)
def test_a_stage_declares_the_paths_that_its_code_uses_and_no_others(stage: str) -> None:
    inputs, outputs = declared(stage, "deps"), declared(stage, *OUTPUTS)
    code, all_of_it = used(stage), {path for path in inputs | outputs if OF_A_STAGE.match(path)}
    assert code
    assert {path for path in code if not within(path, all_of_it)} == set()
    assert {path for path in all_of_it if not within(path, code)} == set()
    assert outputs


@pytest.mark.parametrize("stage", ["register", "report"])
def test_what_packages_and_the_page_repeat_of_the_params_is_named(stage: str) -> None:
    """They shape nothing, so the fields of their entries are not counted; the mappings that they read are."""
    nodes = [node for tree in trees(stage) for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    read = {node.attr for node in nodes if ast.unparse(node.value) in ("params", "choices")}
    read |= {"baselines"} if "baselines_of" in read else set()
    drawn = {over(one) for one in FOR_ITEMS} if stage == "report" else set()  # each entry is a box of its graph
    tops = {key.partition(".")[0] for key in named(stage)}
    read -= {"promotion"}  # of reports/decisions.html, which is no output of a stage
    assert "models" in read
    assert (read | drawn) & get_type_hints(Params).keys() - tops == set()


@pytest.mark.parametrize("stage", OTHERS)
def test_a_stage_that_looks_up_a_pin_names_it(stage: str) -> None:
    """So that a refreshed source runs it again."""
    nodes = [node for tree in trees(stage) for node in ast.walk(tree)]
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    groups = {name(call.args[1]) for call in calls if ast.unparse(call.func).rpartition(".")[2] == "pinned"}
    read = [node for node in nodes if isinstance(node, ast.Subscript)]
    groups |= {name(one.slice) for one in read if ast.unparse(one.value).startswith("pins.read(")}
    assert {key.partition(".")[0] for key in named(stage, "sources.lock.yaml")} == groups


@pytest.mark.parametrize("stage", sorted(BODIES))
def test_an_output_is_cached_by_dvc_or_kept_by_git(stage: str) -> None:
    """Without the one a clone has nothing to pull, with both DVC refuses the run."""
    ignored = [line for line in (ROOT / ".gitignore").read_text(encoding="utf-8").split() if line.startswith("/")]
    for section in OUTPUTS:
        for entry in BODIES[stage].get(section, []):
            given: dict[str, Any] = entry if isinstance(entry, dict) else {entry: {}}
            for path, options in given.items():
                assert options.get("cache", True) == f"/{path}".startswith(tuple(ignored)), path


def test_a_path_is_found_as_it_is_written() -> None:
    assert {"metrics/evaluate/*.json", "metrics/baseline/*.json"} <= used("register")
    assert "reports/samples/baseline-*.json" in used("baseline")
    assert not within("artifacts/corpora/*", {"artifacts/tokens/*-*", "artifacts/corpora-old"})
    assert within("artifacts/corpora/*", {"artifacts/corpora/*/manifest.json"})
