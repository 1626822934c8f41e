"""params.yaml as plain data, read with care: what is missing or mistyped is left out, others report it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lexmill.base import plugins


def entries(data: Mapping[str, Any], group: str) -> dict[str, Mapping[str, Any]]:
    """The entries of a group that are mappings, by name."""
    found = data.get(group)
    if not isinstance(found, Mapping):
        return {}
    return {str(name): entry for name, entry in found.items() if isinstance(entry, Mapping)}


def kind_of(entry: Mapping[str, Any]) -> Any:
    """The kind (`lexmill.kinds.Kind`) of an entry of `models`; None where it has none that is known."""
    name = entry.get("kind")
    return plugins.load("kinds", str(name)).KIND if name in plugins.names("kinds") else None


def named(entry: Mapping[str, Any], key: str) -> str | None:
    """A name in the `data` of an entry of `models`; None where there is none."""
    data = entry.get("data")
    value = data.get(key) if isinstance(data, Mapping) else None
    return value if isinstance(value, str) else None
