"""Rows of parquet files; memory is a batch of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lexmill.base.budgets import MAX_ROW_GROUP_BYTES, MIB
from lexmill.base.errors import UserError
from lexmill.base.outside import parsing
from lexmill.corpora.preparing.errors import Errors
from lexmill.corpora.preparing.readers.columns import Row, check_columns
from lexmill.corpora.preparing.readers.parquet_pages import check_pages
from lexmill.corpora.preparing.text_files import Advance

_BATCH = 1024
_UNREADABLE = "not a readable parquet file"


def read_rows(columns: dict[str, str], file: Path, *, errors: Errors, advance: Advance) -> Iterator[Row]:
    """Yield the rows of a parquet file, numbered from 1.

    Args:
        columns: the column of each role.
        file: the file.
        errors: collects the errors of single values.
        advance: called with the number of bytes read.

    Raises:
        UserError: columns that are not there, a file that is damaged or over its budgets.
    """
    import pyarrow.parquet

    if not file.is_file():
        raise UserError("the file does not exist; fetch the corpus again", file)
    wanted = sorted(set(columns.values()))
    with parsing(_UNREADABLE, file):
        # A page of 1 KB may hold one text of 16 MiB a thousand times: as a dictionary it is in memory once.
        texts = [one.name for one in pyarrow.parquet.read_schema(file) if _is_text(one.type)]
        table = pyarrow.parquet.ParquetFile(file, pre_buffer=False, read_dictionary=texts)
    with table:
        check_columns(columns.values(), table.schema_arrow.names, file, None)
        _check_row_groups(table, wanted, file)
        with parsing(_UNREADABLE, file):
            batches = table.iter_batches(_BATCH, columns=wanted)
        number = 0
        while True:
            with parsing(_UNREADABLE, file):
                batch = next(batches, None)
            if batch is None:
                break
            for i in range(len(batch)):
                number += 1
                try:
                    with parsing("a value cannot be read"):
                        values = {column: batch.column(j)[i].as_py() for j, column in enumerate(batch.schema.names)}
                except UserError as error:
                    errors.add(UserError(f"row {number}: {error.message}", file))
                    continue
                yield Row(str(number), None, {role: values[column] for role, column in columns.items()})
    advance(file.stat().st_size)


def _is_text(kind: Any) -> bool:
    import pyarrow

    return bool(pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind))


def _check_row_groups(table: Any, columns: Sequence[str], file: Path) -> None:
    """Raise `UserError` where the wanted columns of a row group, or a page, are larger than what memory must hold."""
    with parsing(_UNREADABLE, file):
        for i in range(table.metadata.num_row_groups):
            group = table.metadata.row_group(i)
            chunks = [group.column(j) for j in range(group.num_columns)]
            chunks = [one for one in chunks if one.path_in_schema.split(".")[0] in columns]
            size = sum(one.total_uncompressed_size for one in chunks)
            if not 0 <= size <= MAX_ROW_GROUP_BYTES:
                raise UserError(
                    f"row group {i} claims {size:,} bytes, more than {MAX_ROW_GROUP_BYTES // MIB} MiB; write it with"
                    " smaller row groups",
                    file,
                )
            for one in chunks:
                check_pages(file, one)
