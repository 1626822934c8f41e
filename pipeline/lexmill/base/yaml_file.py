"""Strict YAML within a budget: what is wrong is an error with file and line.

Only plain data is read: texts, numbers, true and false, nothing, dates, lists and mappings with keys of these. A syntax
error, a repeated key, another tag and a value that is none (`2026-13-45`) are errors.
Cost: about a second for a thousand lines. The bounds of bytes, nodes (aliases count as what they stand for) and depth
keep the worst file to tens of seconds, however it was made.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexmill.base.errors import UserError, UserErrors
from lexmill.base.shown import value_text

if TYPE_CHECKING:
    import yaml

MOST_BYTES = 4_000_000
MOST_NODES = 100_000
MOST_DEPTH = 50
_MOST_INT = 2**64  # no setting needs a larger one, and Python refuses to print one of over 4,300 digits
_TAG = "tag:yaml.org,2002:"
_PLAIN = {f"{_TAG}{name}" for name in ("str", "int", "float", "bool", "null", "timestamp", "seq", "map")}
_MARKS = {f"{_TAG}merge", f"{_TAG}value"}  # `<<`, which means something only as a key, and `=`
_WORDS = {"int": "a whole number", "float": "a number", "bool": "true or false", "timestamp": "a date"}


def read_yaml(path: str | Path) -> Any:
    """Read a YAML file.

    Raises:
        UserError: it cannot be read, has a syntax error (with file and line) or exceeds a bound.
        UserErrors: all repeated keys and values that cannot be read, each with its line.
    """
    import yaml  # here, so that `lexmill --help` need not wait for it

    path = Path(path)
    text = _text(path)
    try:
        loader = _bounded_loader()(text)
        root = loader.get_single_node()
        if root is None:
            return None
        _check_size(root, path)
        wrong = sorted(_wrong(loader, root), key=lambda found: found[1].start_mark.index)
        if wrong:
            raise UserErrors([UserError(message, path, node.start_mark.line + 1) for message, node in wrong])
        return loader.construct_document(root)
    except _Exceeded as error:
        raise UserError(error.message, path, error.line) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error).split("\n")[0]
        hint = "; indent with spaces" if "\\t" in problem else ""
        raise UserError(f"not valid YAML: {problem}{hint}", path, mark.line + 1 if mark else None) from None


def check_budget(path: Path) -> None:
    """Raise `UserError` where a file that another reader will read may exceed a bound; cheap for all others."""
    try:
        with path.open("rb") as stream:
            data = stream.read(MOST_NODES)  # less cannot have more nodes, but for aliases
    except OSError:
        return  # the other reader reports it
    if len(data) == MOST_NODES or (b"&" in data and b"*" in data):
        read_yaml(path)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            data = stream.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise UserError(f"larger than {MOST_BYTES / 1e6:.0f} MB, the most of a YAML file here; shorten it", path)
        return data.decode("utf-8")
    except FileNotFoundError:
        raise UserError("the file does not exist", path) from None
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", path) from None
    except UnicodeDecodeError as error:
        raise UserError(f"not UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8", path) from None


@cache
def _bounded_loader() -> type[yaml.SafeLoader]:
    """Return a loader that raises `_Exceeded` beyond the bounds, which also limits its own recursion."""
    import yaml

    class Bounded(yaml.SafeLoader):
        nodes = depth = 0

        def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
            line = self.peek_event().start_mark.line + 1
            self.nodes, self.depth = self.nodes + 1, self.depth + 1
            if self.depth > MOST_DEPTH:
                raise _Exceeded(f"nested more than {MOST_DEPTH} levels deep; make it flatter", line)
            if self.nodes > MOST_NODES:
                raise _Exceeded(f"more than {MOST_NODES:,} values and keys; shorten it", line)
            node = super().compose_node(parent, index)
            self.depth -= 1
            return node

    return Bounded


class _Exceeded(Exception):
    def __init__(self, message: str, line: int) -> None:
        self.message, self.line = message, line


def _children(node: yaml.Node) -> Iterator[yaml.Node]:
    for child in node.value if isinstance(node.value, list) else ():
        if isinstance(child, tuple):
            yield from child
        else:
            yield child


def _check_size(root: yaml.Node, path: Path) -> None:
    """Raise `UserError` where the aliases, each counted as what it stands for, make too much or a cycle."""
    sizes: dict[int, tuple[int, int] | None] = {}  # of each node: values and keys in it, and levels; None: it is open

    def measure(node: yaml.Node) -> tuple[int, int]:
        line = node.start_mark.line + 1
        if id(node) in sizes:
            known = sizes[id(node)]
            if known is None:
                raise UserError("an alias lies in what it stands for; write its value out", path, line)
            return known
        sizes[id(node)] = None
        inner = [measure(child) for child in _children(node)]
        size, levels = 1 + sum(one[0] for one in inner), 1 + max((one[1] for one in inner), default=0)
        if size > MOST_NODES:
            raise UserError(f"with its aliases written out, more than {MOST_NODES:,} values and keys", path, line)
        if levels > MOST_DEPTH:
            raise UserError(f"with its aliases written out, nested more than {MOST_DEPTH} levels deep", path, line)
        sizes[id(node)] = (size, levels)
        return size, levels

    measure(root)


def _wrong(loader: yaml.SafeLoader, root: yaml.Node) -> Iterator[tuple[str, yaml.Node]]:
    """Yield what is wrong with single nodes: repeated keys (YAML silently takes the last), tags, values."""
    import yaml

    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if node.tag in _MARKS:
            yield f"{value_text(node.value)} needs quotes to be text", node
        elif node.tag not in _PLAIN:
            yield f"the tag {value_text(node.tag.replace(_TAG, '!!'))} is not read here; leave it out", node
        elif isinstance(node, yaml.ScalarNode) and (error := _scalar_error(loader, node)):
            yield error, node
        if isinstance(node, yaml.MappingNode):
            yield from _key_errors(node)
        waiting.extend(reversed([child for child in _children(node) if not _merges(child, node)]))


def _merges(child: yaml.Node, parent: yaml.Node) -> bool:
    return child.tag == f"{_TAG}merge" and any(child is pair[0] for pair in parent.value if isinstance(pair, tuple))


def _key_errors(node: yaml.MappingNode) -> Iterator[tuple[str, yaml.Node]]:
    import yaml

    keys = set()
    for key, _value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            yield "a list or mapping cannot be a key; write a name", key
            continue
        if (key.tag, key.value) in keys:
            yield f"{value_text(key.value)} is given twice; remove one", key
        keys.add((key.tag, key.value))


def _scalar_error(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> str:
    """Say why a value is not of its type; "" where it is."""
    name = node.tag.removeprefix(_TAG)
    if name not in _WORDS:
        return ""
    try:
        value = loader.construct_object(node)
    except (ValueError, LookupError, AttributeError, TypeError, OverflowError):  # as PyYAML's parsers raise them
        value = _MOST_INT + 1 if node.value.lstrip("-+").isdigit() else None
    if value is None:
        return f"{value_text(node.value)} is not {_WORDS[name]}; quotes make it text"
    too_large = isinstance(value, int) and abs(value) > _MOST_INT
    return f"{value_text(node.value)} is too large a number" if too_large else ""
