"""Sets and an index of hashes on disk: the memory of de-duplication and the leakage check.

One SQLite file in a scratch folder, with a cache of `CACHE_BYTES`, so that a corpus of any size fits; it is temporary,
so nothing is journalled or flushed.
Cost: a little over 16 bytes on disk for each key; a few microseconds a key while the file fits the cache.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CACHE_BYTES = 64 << 20


@contextmanager
def open_index(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a new SQLite file for scratch tables."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        for pragma in (
            "journal_mode = OFF",
            "synchronous = OFF",
            "locking_mode = EXCLUSIVE",
            "temp_store = FILE",
            f"cache_size = {-(CACHE_BYTES >> 10)}",
        ):
            connection.execute(f"PRAGMA {pragma}")
        connection.execute("BEGIN")
        yield connection
    finally:
        connection.close()


class DiskSet:
    """A set of short byte strings."""

    def __init__(self, connection: sqlite3.Connection, name: str) -> None:
        """`name`: the table's name; letters, digits and underscores only."""
        assert name.replace("_", "").isalnum()
        self.name = name
        self._cursor = connection.cursor()
        self._cursor.execute(f"CREATE TABLE {name} (key BLOB PRIMARY KEY) WITHOUT ROWID")
        self._insert = f"INSERT OR IGNORE INTO {name} VALUES (?)"
        self._select = f"SELECT 1 FROM {name} WHERE key = ?"
        self.size = 0

    def __len__(self) -> int:
        return self.size

    def add(self, key: bytes) -> bool:
        """Add a key; True if it was new."""
        new = self._cursor.execute(self._insert, (key,)).rowcount == 1
        self.size += new
        return new

    def __contains__(self, key: bytes) -> bool:
        return self._cursor.execute(self._select, (key,)).fetchone() is not None

    def shared_with(self, other: DiskSet) -> int:
        """How many keys both sets hold."""
        query = f"SELECT count(*) FROM {self.name} JOIN {other.name} USING (key)"
        return int(self._cursor.execute(query).fetchone()[0])
