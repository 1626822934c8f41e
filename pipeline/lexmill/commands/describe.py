"""`lexmill params`: describe the keys of params.yaml and of the execution settings, from their dataclasses."""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Iterator
from typing import Any, Literal, Union, get_args, get_origin

from lexmill import kinds
from lexmill.base.shown import number_text
from lexmill.models import declaration
from lexmill.params.models import Model


def describe(*, execution: bool) -> str:
    """Return one line a key: its path, type, meaning, unit, bounds and default."""
    if execution:
        from lexmill.compute.execution import Execution as Root
    else:
        from lexmill.params import Params as Root  # type: ignore[assignment]
    return "\n".join(_lines(Root, ""))


def _lines(cls: type, prefix: str) -> Iterator[str]:
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        yield f"{prefix}{field.name} ({type_text(hints[field.name])}): {_meaning(field)}"
        yield from _nested(hints[field.name], f"{prefix}{field.name}")


def _nested(kind: Any, path: str) -> Iterator[str]:
    if kind is Model:
        yield from _models(path)
    elif get_origin(kind) is dict:
        yield from _nested(get_args(kind)[1], f"{path}.NAME")
    elif dataclasses.is_dataclass(kind) and not hasattr(kind, "parse"):
        yield from _lines(typing.cast(type, kind), f"{path}.")
    elif get_origin(kind) in (Union, types.UnionType):
        options = [option for option in get_args(kind) if dataclasses.is_dataclass(option)]
        for option in options:
            first = dataclasses.fields(option)[0].name
            choices = get_args(typing.get_type_hints(option)[first])
            yield f"{path}, with {first} {' or '.join(map(str, choices))}: {_first_line(option)}"
            yield from _lines(typing.cast(type, option), f"{path}.")


def _models(path: str) -> Iterator[str]:
    """Describe an entry of `models`, by kind and by family."""
    for kind in kinds.every():
        yield f"{path}, with kind {kind.name}: {_first_line(kind.entry)}"
        yield from _lines(kind.entry, f"{path}.")
    for family in dict.fromkeys(family for kind in kinds.every() for family in declaration.families(*kind.roles)):
        shape = declaration.family(family).shape
        yield f"{path}.shape, with family {family}: {_first_line(shape)}"
        yield from _lines(shape, f"{path}.shape.")


def _first_line(cls: Any) -> str:
    return (cls.__doc__ or "").strip().split("\n")[0]


def _meaning(field: dataclasses.Field[Any]) -> str:
    about = field.metadata
    parts = [str(about.get("meaning", "which of the kinds below"))]
    if about.get("unit"):
        parts.append(f"in {about['unit']}")
    words = {"low": "at least", "above": "above", "high": "at most", "below": "below"}
    bounds = [f"{word} {number_text(about[key])}" for key, word in words.items() if about.get(key) is not None]
    if bounds:
        parts.append(" and ".join(bounds))
    if field.default is not dataclasses.MISSING:
        default = list(field.default) if isinstance(field.default, tuple) else field.default
        default = str(default) if hasattr(default, "parse") else default
        parts.append("default none" if default is None else f"default {default!r}")
    return "; ".join(parts)


def type_text(kind: Any) -> str:
    """Return a type in words: `number`, `list of text`, `one of a, b`."""
    plain = {int: "whole number", float: "number", str: "text", bool: "true or false", type(None): "none"}
    if kind in plain:
        return plain[kind]
    if hasattr(kind, "parse"):
        return re.sub("(?<!^)(?=[A-Z])", " ", kind.__name__).lower()  # MicroBatch: micro batch
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return f"one of {', '.join(map(str, arguments))}"
    if origin is tuple:
        return f"list of {type_text(arguments[0])}"
    if origin is dict:
        return "mapping by name"
    if origin in (Union, types.UnionType):
        if any(dataclasses.is_dataclass(option) for option in arguments):
            return "one of several kinds"
        return " or ".join(type_text(option) for option in arguments)
    return "mapping"
