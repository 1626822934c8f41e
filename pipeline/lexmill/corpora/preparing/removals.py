"""Removed records by filter: counts and a few examples, the same ones every time."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Any

from lexmill.base.cutting import beginning
from lexmill.corpora.preparing.record import text_key

EXAMPLES = 5
_EXAMPLE_CHARACTERS = 200


class Removals:
    """Counts for each filter, and the `EXAMPLES` removed records with the smallest hashes: a sample of them all."""

    def __init__(self, names: Iterable[str]) -> None:
        self.counts = dict.fromkeys(names, 0)
        self._examples: dict[str, list[tuple[int, str]]] = {name: [] for name in self.counts}

    def add(self, name: str, shown: str) -> None:
        """Count a record that the filter `name` removed."""
        self.counts[name] += 1
        example = shown if len(shown) <= _EXAMPLE_CHARACTERS else beginning(shown, _EXAMPLE_CHARACTERS) + " ..."
        self._keep(name, -int.from_bytes(text_key(shown), "big"), example)

    def _keep(self, name: str, rank: int, example: str) -> None:
        kept = self._examples[name]
        if (len(kept) == EXAMPLES and rank <= kept[0][0]) or (rank, example) in kept:
            return
        (heapq.heappush if len(kept) < EXAMPLES else heapq.heapreplace)(kept, (rank, example))

    def as_plain(self) -> dict[str, Any]:
        """Return the input of `merge` as plain JSON values."""
        return {"counts": self.counts, "examples": self._examples}

    def merge(self, other: dict[str, Any]) -> None:
        """Add the removals of another process (from `as_plain`)."""
        for name, count in other["counts"].items():
            self.counts[name] += count
            for rank, example in other["examples"][name]:
                self._keep(name, rank, example)

    def samples(self) -> list[dict[str, Any]]:
        """`{"name", "removed", "examples"}` of each filter, in the order in which they ran."""
        return [
            {"name": name, "removed": count, "examples": [shown for _, shown in sorted(self._examples[name])]}
            for name, count in self.counts.items()
        ]
