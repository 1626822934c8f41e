"""Which pairs belong together, and at which rank the partner of a text is found among all partners.

Letters: N pairs, C candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lexmill.base.errors import UserError
from lexmill.corpora.prepared import PreparedCorpus

Floats = NDArray[np.float64]
Cosines = Callable[[Sequence[int], Sequence[int]], Floats]
"""From pairs and pairs, the cosines of the first texts of the former with the second texts of the latter."""

_CHUNK = 512  # texts that are compared with all candidates at once


def number_of(label: str) -> float | None:
    """Return a label as a finite number, if it is one."""
    try:
        found = float(label)
    except ValueError:
        return None
    return found if np.isfinite(found) else None


def belongs(record: Mapping[str, str], positive: str) -> bool:
    """Return whether a pair belongs together: see `Data.positive`."""
    least, found = number_of(positive), number_of(record["label"])
    if least is not None and found is not None:
        return found >= least
    return not positive or record["label"] == positive


def pairs_of(corpus: PreparedCorpus, split: str) -> list[dict[str, Any]]:
    """Return the records of a split; raise `UserError` if there are none, or no second texts."""
    found = list(corpus.records(split))
    if not found:
        raise UserError(f"the {split} split is empty; give `splits` other shares", corpus.folder)
    if "second" not in found[0]:
        raise UserError("a sentence encoder learns from pairs; name the second text's column, reader.second")
    return found


def partner_ranks(records: Sequence[Mapping[str, str]], cosines: Cosines) -> list[int]:
    """Return the rank, from 1, of each pair's second text among those of all pairs, by the cosine with the first, (N,).

    Equal texts are one candidate; the text itself and its other partners are none. Of equal cosines the partner's comes
    last, so that equal vectors find nothing.
    """
    first_with: dict[str, int] = {}
    for i, record in enumerate(records):
        first_with.setdefault(record["second"], i)
    number = {text: column for column, text in enumerate(first_with)}  # C
    partners: dict[str, set[int]] = {}
    for record in records:
        partners.setdefault(record["text"], set()).add(number[record["second"]])
    found: list[int] = []
    for start in range(0, len(records), _CHUNK):
        some = range(start, min(start + _CHUNK, len(records)))
        table = cosines(some, list(first_with.values()))  # (chunk, C)
        for i, row in zip(some, table, strict=True):
            own, text = number[records[i]["second"]], records[i]["text"]
            left_out = (partners[text] | {number.get(text, own)}) - {own}
            ahead = int((row >= row[own]).sum()) - sum(row[one] >= row[own] for one in left_out)
            found.append(int(ahead))
    return found


def of_vectors(first: Floats, second: Floats) -> Cosines:
    """Return the cosines of vectors of length 1, (N, D) each."""
    return lambda rows, columns: first[list(rows)] @ second[list(columns)].T
