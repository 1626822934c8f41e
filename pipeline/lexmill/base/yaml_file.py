"""Strict YAML: a syntax error or a repeated key is an error with file and line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexmill.base.errors import UserError, UserErrors

if TYPE_CHECKING:
    import yaml


def read_yaml(path: str | Path) -> Any:
    """Read a YAML file.

    Raises:
        UserError: it cannot be read or has a syntax error, with file and line.
        UserErrors: all repeated keys, each with its line.
    """
    import yaml  # here, so that `lexmill --help` need not wait for it

    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError("the file does not exist", path) from None
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", path) from None
    except UnicodeDecodeError as error:
        raise UserError(f"not UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8", path) from None
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        twice = [UserError(f"'{key}' is given twice; remove one", path, line) for key, line in _repeated(root)]
        if twice:
            raise UserErrors(twice)
        return None if root is None else loader.construct_document(root)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error).split("\n")[0]
        hint = "; indent with spaces" if "\\t" in problem else ""
        raise UserError(f"not valid YAML: {problem}{hint}", path, mark.line + 1 if mark else None) from None


def _repeated(root: yaml.Node | None) -> list[tuple[str, int]]:
    """Return the repeated keys of mappings (YAML silently takes the last), each with its line, from 1."""
    import yaml

    found: list[tuple[str, int]] = []
    seen: set[int] = set()  # an anchor may lie in its own contents

    def visit(node: yaml.Node | None) -> None:
        if node is None or id(node) in seen:
            return
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            for item in node.value:
                visit(item)
        elif isinstance(node, yaml.MappingNode):
            keys = set()
            for key, value in node.value:
                if isinstance(key, yaml.ScalarNode):
                    if (key.tag, key.value) in keys:
                        found.append((key.value, key.start_mark.line + 1))
                    keys.add((key.tag, key.value))
                visit(value)

    visit(root)
    return found
