"""Each fault on docs/pitfalls.md names tests that exist."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "pitfalls.md").read_text(encoding="utf-8")
ROOMS = ("Resume and data order", "Checkpoints", "Loss and metrics", "Numerics", "Distributed", "N-gram")


def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_fault_has_a_test_that_exists() -> None:
    sections = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
    assert set(ROOMS) <= set(sections)
    for title, section in sections.items():
        rows = [line for line in section.split("\n") if line.startswith("| ")][1:]
        assert rows, title
        for row in rows:
            named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row)
            assert named, row
            for file, name in named:
                assert name in functions(ROOT / file), f"{file}::{name}"
