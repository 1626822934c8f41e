"""The canonical text of a Python file's syntax tree, in parts, and the modules it imports.

Comments, docstrings, layout and type-checking blocks are left out. The text is the same on every Python from 3.11 on:
empty fields are left out, so a field added by a later version changes nothing while it is unused.

Cost: about 4 ms for a file of 100 lines, once in a process.
"""

from __future__ import annotations

import ast
import hashlib
import threading
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

_LOADS = "LOADS"
_parsing = threading.Lock()  # CPython 3.11 raises SystemError where two threads parse at once
_REST = "imports and statements"
# Without effect on the program: load or store, the `u` of a string, type comments.
_LEFT_OUT = frozenset({"ctx", "kind", "type_comment"})
_TYPE_CHECKING = ("TYPE_CHECKING", "typing.TYPE_CHECKING")


@dataclass(frozen=True)
class Source:
    """A parsed file.

    Attributes:
        text: of the tree.
        parts: the text of each top-level definition and method (`LSTM.forward`), in the file's order.
        imports: dotted names it may import anywhere: modules, and members that may be modules.
        loads: the modules and files in its constant `LOADS`.
    """

    text: str
    parts: dict[str, str]
    imports: frozenset[str]
    loads: tuple[str, ...]

    @cached_property
    def digest(self) -> str:
        """Return the sha256 of the tree."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def part_digests(self) -> dict[str, str]:
        """Return a short digest of each part."""
        return {name: hashlib.sha256(text.encode()).hexdigest()[:12] for name, text in self.parts.items()}


@cache
def read(text: str, module: str, is_package: bool = False) -> Source:
    """Parse a module; raise `SyntaxError` where it is not Python.

    Args:
        text: of the file.
        module: its dotted name, from which relative imports start.
        is_package: whether the file is an `__init__.py`.
    """
    with _parsing:
        body = _saying(ast.parse(text).body)
    parts: dict[str, str] = {}
    whole = []
    for node in body:
        if isinstance(node, ast.ClassDef):
            inside = [(node.name + _member(one), _text(one)) for one in _saying(node.body)]
            head = _fields(node, without="body")
            parts[node.name] = parts.get(node.name, "") + head
            for name, said in inside:
                parts[name] = parts.get(name, "") + said
            whole.append(f"{head}{{{','.join(said for _, said in inside)}}}")
        else:
            said = _text(node)
            name = _name(node)
            parts[name] = parts.get(name, "") + said
            whole.append(said)
    base = module if is_package else module.rpartition(".")[0]
    return Source(",".join(whole), parts, frozenset(_imports(body, base)), _loads(body))


def data(content: bytes) -> Source:
    """Return the source of a file that is not Python, such as a template: its text is the hash of its bytes."""
    return Source(hashlib.sha256(content).hexdigest(), {}, frozenset(), ())


def _member(node: ast.stmt) -> str:
    return f".{node.name}" if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else ""


def _name(node: ast.stmt) -> str:
    """Return the name of a top-level function or constant, else `_REST`."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return node.name
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return targets[0].id if len(targets) == 1 and isinstance(targets[0], ast.Name) else _REST


def _saying(body: list[ast.stmt]) -> list[ast.stmt]:
    """Drop statements without effect: docstrings, `pass`, type-checking blocks."""
    found: list[ast.stmt] = []
    for node in body:
        if isinstance(node, ast.Pass):
            continue
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test) in _TYPE_CHECKING:
            found += _saying(node.orelse)
            continue
        found.append(node)
    return found


def _text(value: Any) -> str:
    """Return the text of a node, a list or a plain value; equal texts mean equal code."""
    if isinstance(value, ast.AST):
        return _fields(value)
    if isinstance(value, list):
        if value and isinstance(value[0], ast.stmt):
            value = _saying(value)
        return f"[{','.join(map(_text, value))}]"
    if value is None:
        return "-"  # nothing there, as before `**more` in a dict; the constant None is a node
    return ascii(value)  # repr() follows the Unicode tables of its Python


def _fields(node: ast.AST, without: str = "") -> str:
    if isinstance(node, ast.Constant):
        return ascii(node.value)
    if isinstance(node, ast.Name):
        return f"Name({node.id})"
    found = []
    for name in node._fields:
        value = getattr(node, name, None)
        if value is None or value == [] or name in _LEFT_OUT or name == without:
            continue
        if name == "values" and isinstance(node, ast.JoinedStr):
            value = _joined(value)
        found.append(f"{name}={_text(value)}")
    return f"{type(node).__name__}({','.join(found)})"


def _joined(values: list[ast.expr]) -> list[ast.expr]:
    """Merge adjacent plain pieces of an f-string: versions of Python cut it differently."""
    found: list[ast.expr] = []
    for value in values:
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            last = found[-1] if found else None
            if isinstance(last, ast.Constant):
                found[-1] = ast.Constant(str(last.value) + value.value)
            elif value.value:
                found.append(value)
        else:
            found.append(value)
    return found


def _imports(body: list[ast.stmt], base: str) -> set[str]:
    found: set[str] = set()
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = base.split(".")[: len(base.split(".")) - node.level + 1] if node.level else []
            start = ".".join([*above, *filter(None, [node.module])])
            found.add(start)
            found.update(f"{start}.{alias.name}" for alias in node.names)
        elif not isinstance(node, ast.expr):
            # Imports are statements: no expression holds one.
            for name in ("body", "orelse", "finalbody", "handlers", "cases"):
                inside = getattr(node, name, None)
                if isinstance(inside, list):
                    waiting += _saying(inside) if inside and isinstance(inside[0], ast.stmt) else inside
    return found


def _loads(body: list[ast.stmt]) -> tuple[str, ...]:
    for node in body:
        if isinstance(node, ast.Assign) and _name(node) == _LOADS:
            return tuple(ast.literal_eval(node.value))
    return ()
