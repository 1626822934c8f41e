"""Build frozen dataclasses from plain data (YAML), strictly, and report all errors at once.

`spec(...)` declares a field: its one-line meaning, unit and bounds. An unknown or missing key, a wrong type or a value
out of bounds is an error with the key's full path, and the nearest known key. A number without a bound of its own has
that of its type. `1e-5`, which YAML reads as text, is accepted as a number. A class with `parse(value)` reads its own
notation, one with `convert(data, path, errors)` chooses the dataclass for its data.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import difflib
import math
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from lexmill.base.errors import UserError
from lexmill.base.shown import key_text, number_text, value_text

T = TypeVar("T")
_INVALID: Any = object()

# Bounds by type, where a field has none: what a JSON number holds exactly; what keeps its sums and squares finite.
MOST_INT = 2**53
MOST_FLOAT = 10**15
LONGEST = 10**9  # seconds, about 30 years: a bound for waits, which the system limits

_MOST_KNOWN = 30
_LONG_NAME = 100  # no name is longer, and longer notations are none
_UNPRINTED = re.compile("[\0\ud800-\udfff]")


def spec(
    meaning: str,
    default: Any = MISSING,
    *,
    unit: str = "",
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    below: float | None = None,
    factory: Any = MISSING,
) -> Any:
    """Declare a dataclass field with its documentation and bounds.

    Args:
        meaning: one line, shown by `lexmill params`.
        default: the default value; without one the key is required.
        unit: the unit of the value.
        low, high: inclusive bounds; without any, a number has those of its type.
        above, below: exclusive bounds.
        factory: a default factory, for mappings.
    """
    metadata = {"meaning": meaning, "unit": unit, "low": low, "high": high, "above": above, "below": below}
    if factory is not MISSING:
        return dataclasses.field(default_factory=factory, metadata=metadata)
    if default is not MISSING:
        return dataclasses.field(default=default, metadata=metadata)
    return dataclasses.field(metadata=metadata)


def nearest(name: str, known: typing.Iterable[str]) -> str:
    """Return `, did you mean 'x'?` for the nearest known name, else a list of the known ones."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6) if len(name) <= _LONG_NAME else []
    if close:
        return f", did you mean '{close[0]}'?"
    shown = [*known[:_MOST_KNOWN], *(["..."] if len(known) > _MOST_KNOWN else [])]
    return f"; known: {', '.join(shown)}" if known else "; none is defined"


def flatten(data: Any, prefix: str = "") -> dict[str, Any]:
    """Return nested mappings as one with dotted keys; a list and an empty mapping are values."""
    if not (isinstance(data, Mapping) and data):
        return {prefix: data}
    found: dict[str, Any] = {}
    for key, inner in data.items():
        found |= flatten(inner, f"{prefix}.{key}" if prefix else str(key))
    return found


def pick(entries: Mapping[str, T], name: str, group: str) -> T:
    """Return the entry of that name; raise `UserError` with the nearest known one where there is none."""
    if name not in entries:
        raise UserError(f"{group}.{name} is not in params.yaml{nearest(name, entries)}")
    return entries[name]


def build(cls: type[T], data: Any, errors: list[str], path: str = "") -> T | None:
    """Build `cls` from plain data, or return None and append what is wrong to `errors`."""
    value = _convert(cls, data, path, errors)
    return None if value is _INVALID else value


@cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _show(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, datetime.date):  # YAML makes one of 2026-01-31
        return f"the date {value}; put it in quotes to make it text"
    return value_text(value)


def _type_name(kind: Any) -> str:
    names = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
    return names.get(kind, getattr(kind, "__name__", str(kind)))


def _convert(kind: Any, data: Any, path: str, errors: list[str]) -> Any:
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _convert_union(get_args(kind), data, path, errors)
    if origin is Literal:
        choices = get_args(kind)
        if data in choices and type(data) in {type(choice) for choice in choices}:
            return data
        hint = nearest(data, [str(c) for c in choices]) if isinstance(data, str) else ""
        known = ", ".join(str(choice) for choice in choices)
        errors.append(f"{path}: {_show(data)} is none of: {known}" + (hint if hint.startswith(", did") else ""))
        return _INVALID
    if origin is tuple:
        return _convert_tuple(get_args(kind)[0], data, path, errors)
    if origin in (dict, Mapping) or (isinstance(origin, type) and issubclass(origin, Mapping)):
        return _convert_mapping(get_args(kind)[1], data, path, errors)
    if kind is Any:
        return data
    if "convert" in getattr(kind, "__dict__", {}):  # not inherited: it may choose a subclass
        found = kind.convert(data, path, errors)
        return _INVALID if found is None else found
    if hasattr(kind, "parse"):
        return _convert_parsed(kind, data, path, errors)
    if dataclasses.is_dataclass(kind):
        return _convert_dataclass(kind, data, path, errors)
    return _convert_scalar(kind, data, path, errors)


def _convert_union(options: tuple[Any, ...], data: Any, path: str, errors: list[str]) -> Any:
    if data is None and type(None) in options:
        return None
    options = tuple(option for option in options if option is not type(None))
    if len(options) == 1:
        return _convert(options[0], data, path, errors)
    # The first field, a Literal (`kind`, `format`), distinguishes the dataclasses of a union.
    tag = dataclasses.fields(options[0])[0].name
    if not isinstance(data, Mapping):
        errors.append(f"{path}: expected a mapping with '{tag}', got {_show(data)}")
        return _INVALID
    by_tag = {choice: option for option in options for choice in get_args(_hints(option)[tag])}
    if tag not in data:
        errors.append(f"{path}: '{tag}' is missing; one of: {', '.join(sorted(by_tag))}")
        return _INVALID
    if not isinstance(data[tag], str) or data[tag] not in by_tag:
        errors.append(f"{path}.{tag}: {_show(data[tag])} is unknown{nearest(key_text(data[tag]), by_tag)}")
        return _INVALID
    return _convert_dataclass(by_tag[data[tag]], data, path, errors)


def _convert_tuple(item: Any, data: Any, path: str, errors: list[str]) -> Any:
    if not isinstance(data, list | tuple):
        errors.append(f"{path}: expected a list, got {_show(data)}")
        return _INVALID
    values = [_convert(item, value, f"{path}[{i}]", errors) for i, value in enumerate(data)]
    return _INVALID if any(value is _INVALID for value in values) else tuple(values)


def _convert_mapping(item: Any, data: Any, path: str, errors: list[str]) -> Any:
    if not isinstance(data, Mapping):
        hint = "; write {} for none" if data is None else ""
        errors.append(f"{path}: expected a mapping, got {_show(data)}{hint}")
        return _INVALID
    for key in data:
        if not isinstance(key, str):
            errors.append(f"{path}: the name {_show(key)} must be text; put it in quotes")
        elif why := _unprinted(key):
            errors.append(f"{path}: the name {_show(key)} {why}")
    values = {_name(k): _convert(item, value, f"{path}.{key_text(k)}", errors) for k, value in data.items()}
    return _INVALID if any(value is _INVALID for value in values.values()) else values


def _convert_dataclass(cls: Any, data: Any, path: str, errors: list[str]) -> Any:
    if not isinstance(data, Mapping):
        empty = data is None and not path
        errors.append("the file is empty" if empty else f"{path or 'the file'}: expected a mapping, got {_show(data)}")
        return _INVALID
    before = len(errors)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    prefix = f"{path}." if path else ""
    for key in data:
        if key not in fields:
            errors.append(f"{prefix}{key_text(key)}: unknown key{nearest(key_text(key), fields)}")
    values: dict[str, Any] = {}
    for name, field in fields.items():
        if name in data:
            value = _convert(_hints(cls)[name], data[name], prefix + name, errors)
            if value is not _INVALID:
                _check_bounds(field, value, prefix + name, errors)
                values[name] = value
        elif field.default is MISSING and field.default_factory is MISSING:
            errors.append(f"{prefix}{name}: missing: {field.metadata.get('meaning', 'required')}")
    if len(errors) > before:
        return _INVALID
    instance = cls(**values)
    check = getattr(instance, "errors", None)
    if check is not None:
        errors.extend(f"{prefix}{error}" if path else error for error in check())
        if len(errors) > before:
            return _INVALID
    return instance


def _check_bounds(field: dataclasses.Field[Any], value: Any, path: str, errors: list[str]) -> None:
    bounds = field.metadata
    low, high, above, below = (bounds.get(name) for name in ("low", "high", "above", "below"))
    several = value if isinstance(value, tuple) else value.values() if isinstance(value, dict) else (value,)
    for number in several:
        if isinstance(number, bool) or not isinstance(number, int | float):
            continue
        most = MOST_INT if isinstance(number, int) else MOST_FLOAT
        least = -most if low is None and above is None else low
        greatest = most if high is None and below is None else high
        if least is not None and number < least:
            errors.append(f"{path}: {_show(number)} is too small; at least {number_text(least)}")
        if greatest is not None and number > greatest:
            errors.append(f"{path}: {_show(number)} is too large; at most {number_text(greatest)}")
        if above is not None and number <= above:
            errors.append(f"{path}: {_show(number)} is too small; it must be above {number_text(above)}")
        if below is not None and number >= below:
            errors.append(f"{path}: {_show(number)} is too large; it must be below {number_text(below)}")


def _convert_parsed(kind: Any, data: Any, path: str, errors: list[str]) -> Any:
    """Convert by the type's own `parse(value)`, which raises ValueError."""
    if isinstance(data, Mapping | list | tuple) or (isinstance(data, str) and len(data) > _LONG_NAME):
        errors.append(f"{path}: expected a short text or a number, got {_show(data)}")
        return _INVALID
    try:
        return kind.parse(data)
    except ValueError as error:
        errors.append(f"{path}: {error}")
        return _INVALID


def _convert_scalar(kind: Any, data: Any, path: str, errors: list[str]) -> Any:
    value: Any = data
    if kind is float and isinstance(data, str) and len(data) <= _LONG_NAME:
        with contextlib.suppress(ValueError):
            value = float(data)  # YAML 1.1 reads 1e-5 as text
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            value = float(value)
        except OverflowError:
            value = math.inf
    if kind is float and isinstance(value, float) and not math.isfinite(value):
        errors.append(f"{path}: expected a finite number, got {_show(data)}")
        return _INVALID
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        # YAML 1.1 reads no, off, yes and on (`no` is also Norwegian) as true or false.
        then = "; put the word of the file in quotes to make it text" if kind is str and isinstance(value, bool) else ""
        errors.append(f"{path}: expected {_type_name(kind)}, got {_show(data)}{then}")
        return _INVALID
    if isinstance(value, str) and (why := _unprinted(value)):
        errors.append(f"{path}: {_show(value)} {why}")
        return _INVALID
    return value


def _unprinted(text: str) -> str:
    """Say why a text cannot be in a path or a UTF-8 file; "" where it can."""
    found = _UNPRINTED.search(text)
    if found is None:
        return ""
    return "holds a null character; take it out" if found[0] == "\0" else "is not Unicode text: a lone surrogate"


def _name(key: Any) -> str:
    return key if isinstance(key, str) else value_text(key)
