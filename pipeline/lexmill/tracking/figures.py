"""The numbers of a metrics file as MLflow takes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def metric_name(text: str) -> str:
    """A text as MLflow takes it in a metric's name."""
    return "".join(c if c.isalnum() or c in "_-. :/" else "_" for c in text)[:240]


def numbers_in(figures: Any) -> Iterator[tuple[str, float]]:
    """The numbers of a metrics file as metrics: the first level before a slash, deeper ones dotted."""

    def walk(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], float]]:
        if isinstance(value, Mapping):
            for key, item in value.items():
                yield from walk(item, (*path, str(key)))
        elif isinstance(value, int | float):
            yield path, float(value)

    for path, number in walk(figures, ()):
        if path:
            name = path[0] if len(path) == 1 else f"{path[0]}/{'.'.join(path[1:])}"
            yield metric_name(name), number
