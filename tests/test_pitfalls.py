"""Each line of docs/pitfalls.md, security.md and reliability.md names tests that exist and are never skipped."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "pitfalls.md").read_text(encoding="utf-8")
ROOMS = ("Resume and data order", "Checkpoints", "Loss and metrics", "Numerics", "Distributed", "N-gram")
PARTS = ("DVC", "Prefect", "MLflow", "Lightning", "Equal bytes")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
PASSED_OVER = re.compile(r"pytest\.(mark\.)?(skip|skipif|xfail|importorskip)\b")


@cache
def functions(path: Path) -> dict[str, ast.FunctionDef]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def is_test(path: Path, name: str) -> bool:
    return path.name.startswith("test_") and name.startswith("test_") and name in functions(path)


def test_the_page_has_a_section_for_each_part() -> None:
    assert {*ROOMS, *PARTS} <= set(SECTIONS)


@pytest.mark.parametrize("title", SECTIONS)
def test_every_error_has_a_test_that_exists(title: str) -> None:
    rows = [line for line in SECTIONS[title].split("\n") if line.startswith("| ")][1:]
    assert rows
    _name_tests(rows)


@pytest.mark.parametrize("page", ["reliability", "security"])
def test_every_claim_has_a_test_that_exists(page: str) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    rows = [
        line
        for line in text.split("\n")
        if line.startswith("| ") and not line.startswith(("| claim ", "| what happens "))
    ]
    assert rows
    _name_tests(rows)


def _name_tests(rows: list[str]) -> None:
    for row in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row)
        assert named, row
        assert row.count("`tests/") == len(named), row
        for file, name in named:
            assert is_test(ROOT / file, name), f"{file}::{name}"
            assert not PASSED_OVER.search(ast.unparse(functions(ROOT / file)[name])), f"{file}::{name} may be skipped"
