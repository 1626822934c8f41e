"""Names of metrics, params and tags in MLflow, made from any keys, labels among them.

MLflow takes letters, digits and `_-. :/` in a name, of at most 250 characters, that is a tidy path: no empty part, no
`.` or `..`. A plain key stays as it is. Any other character is written as its code, `C#` as `C_x0023_` (as in Office
Open XML, ECMA-376 part 1, 22.9.2.19), and so is the `_` of a text that looks like such a code. So two keys of one
mapping never share a name, and `key_of` reads it back; only of a name that is too long, the end is replaced by a hash.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lexmill.base.storage import sha256_bytes

MOST_CLASSES = 50  # metrics of more classes would bury all others on a run's page
LONGEST = 240  # of MLflow's 250: a run's own prefix may come before it
_HASH = 16
_EMPTY = "_x_"
_UNTAKEN = re.compile(r"[^\w\-. :/]|_(?=x[0-9A-F]*_)")
_CODE = re.compile(r"_x([0-9A-F]*)_")


def metric_name(path: Sequence[str]) -> str:
    """Return the name of a nested value: its first key before a slash, its deeper ones dotted."""
    first, *rest = map(_coded, path)
    if not rest:
        return _bounded(_tidy(first))
    keys = rest if len(rest) == 1 else [_without(".", key) for key in rest]
    return _bounded(f"{_tidy(_without('/', first))}/{_tidy('.'.join(keys))}")


def entity_name(key: str) -> str:
    """Return the name of a param or tag for a dotted key."""
    return _bounded(_tidy(_coded(key)))


def key_of(name: str) -> str:
    """Return the key that a part of a name was made from."""
    return _CODE.sub(lambda found: chr(int(found[1], 16)) if found[1] else "", name)


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the values of nested mappings with their keys."""
    if not isinstance(value, Mapping):
        yield path, value
        return
    for key, inner in value.items():
        yield from leaves(inner, (*path, str(key)))


def numbers_in(metrics: Any) -> Iterator[tuple[str, float]]:
    """Yield the numbers of a metrics file by the names of metrics; of `per_class` those of few classes."""
    for path, value in leaves(with_few_classes(metrics)):
        if path and isinstance(value, int | float):
            yield metric_name(path), float(value)


def with_few_classes(metrics: Any) -> Any:
    """Return metrics without `per_class` if it has more than `MOST_CLASSES` classes."""
    if isinstance(metrics, Mapping) and len(metrics.get("per_class", ())) > MOST_CLASSES:
        return {key: value for key, value in metrics.items() if key != "per_class"}
    return metrics


def _coded(text: str) -> str:
    return _UNTAKEN.sub(lambda found: _code(found[0]), text)


def _tidy(coded: str) -> str:
    """Return a text as a part of a name that no path would shorten."""
    parts = coded.split("/")
    if len(parts) > 1 and any(part in ("", ".", "..") for part in parts):
        coded = _without("/", coded)
    if coded == "." or coded.startswith(".."):
        coded = _code(".") + coded[1:]
    return coded or _EMPTY


def _without(character: str, text: str) -> str:
    return text.replace(character, _code(character))


def _code(character: str) -> str:
    return f"_x{ord(character):04X}_"


def _bounded(name: str) -> str:
    if len(name) <= LONGEST:
        return name
    return f"{name[: LONGEST - _HASH - 1]}-{sha256_bytes(name.encode())[:_HASH]}"
