"""Exact and near duplicates: the first of equal records stays.

Exact: equal normalised text (both sides of a pair; labels are ignored). Near: the Jaccard similarity of two records'
sets of word n-grams, estimated by MinHash (Broder 1997) for the candidates of locality-sensitive hashing (Leskovec,
Rajaraman, Ullman, Mining of Massive Datasets, chapter 3). Signatures and band sizes are those of `datasketch`; its
index lives in memory, so this one keeps the same bands in a SQLite file.
The workers compute the signatures; the stage decides in the order of the records.
Cost of near: 4 bytes a permutation and some 30 bytes a band on disk for each kept record; memory O(1).
"""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

from lexmill.corpora.preparing.disk_index import DiskSet
from lexmill.corpora.preparing.record import Record
from lexmill.params.corpora import Deduplicate

_WORD = re.compile(r"\w+")
_SHINGLES_AT_ONCE = 4096


class ExactDuplicates:
    """The texts seen so far, as hashes on disk."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._seen = DiskSet(connection, "seen_texts")

    def __call__(self, key: bytes) -> bool:
        """Return whether the text of this key was seen before, and remember it."""
        return not self._seen.add(key)


class Signatures:
    """MinHash signatures of records."""

    def __init__(self, choice: Deduplicate) -> None:
        from datasketch import MinHash

        self._shingle = choice.shingle
        # An explicit seed and scheme: the signatures are part of the result.
        self._minhash: Any = MinHash(num_perm=choice.permutations, seed=1, scheme="affine32")

    def __call__(self, record: Record) -> bytes:
        """(permutations,) little-endian uint32."""
        self._minhash.clear()
        grams = shingles(" ".join(record.sides), self._shingle)
        while batch := [gram.encode("utf-8") for gram in islice(grams, _SHINGLES_AT_ONCE)]:
            self._minhash.update_batch(batch)
        return np.asarray(self._minhash.hashvalues).astype("<u4").tobytes()


class NearDuplicates:
    """The signatures of the records kept so far, on disk."""

    def __init__(self, connection: sqlite3.Connection, choice: Deduplicate) -> None:
        from datasketch import MinHashLSH

        self._choice = choice
        try:
            geometry = MinHashLSH(threshold=choice.threshold, num_perm=choice.permutations)
        except ValueError:  # so near to 1 that one band would do, which it refuses
            geometry = MinHashLSH(num_perm=choice.permutations, params=(2, choice.permutations // 2))
        self._bands, self._rows = int(geometry.b), int(geometry.r)
        self._cursor = connection.cursor()
        self._cursor.execute("CREATE TABLE bands (hash BLOB, record INTEGER, PRIMARY KEY (hash, record)) WITHOUT ROWID")
        self._cursor.execute("CREATE TABLE signatures (record INTEGER PRIMARY KEY, signature BLOB)")
        self._kept = 0

    def __call__(self, data: bytes) -> bool:
        """Return whether a kept record is similar to that of this signature (`Signatures`); if none is, keep it."""
        signature = np.frombuffer(data, "<u4")
        hashes = list(self._band_hashes(signature))
        marks = ",".join("?" * len(hashes))
        query = f"SELECT DISTINCT signature FROM bands JOIN signatures USING (record) WHERE hash IN ({marks})"
        for (other,) in self._cursor.execute(query, hashes):
            if float(np.mean(np.frombuffer(other, "<u4") == signature)) >= self._choice.threshold:
                return True
        self._cursor.execute("INSERT INTO signatures VALUES (?, ?)", (self._kept, data))
        self._cursor.executemany("INSERT OR IGNORE INTO bands VALUES (?, ?)", ((h, self._kept) for h in hashes))
        self._kept += 1
        return False

    def _band_hashes(self, signature: np.ndarray) -> Iterator[bytes]:
        for band in range(self._bands):
            rows = signature[band * self._rows : (band + 1) * self._rows]
            yield hashlib.blake2b(band.to_bytes(2, "little") + rows.tobytes(), digest_size=12).digest()


def shingles(text: str, size: int) -> Iterator[str]:
    """The word n-grams of a text, case folded; a text of fewer words is one n-gram, one without words itself."""
    window: list[str] = []
    whole = True
    for match in _WORD.finditer(text.casefold()):
        window.append(match.group())
        if len(window) == size:
            whole = False
            yield " ".join(window)
            del window[0]
    if whole:
        yield " ".join(window) or text
