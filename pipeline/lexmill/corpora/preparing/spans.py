"""Cut large files between records, so that several workers share one file.

The end of a record can depend on all lines before it, and record names and error locations contain line numbers. So the
files are read twice. First the workers scan each range of bytes by itself: they count the lines that begin in it and
find the state after it (inside a record or not) for either state before it. Then the stage joins the results in order
into a `Span` for each range in which a line begins. Records, names and errors are those of reading the whole file.

Only files whose records consist of lines are cut (`readers.of_lines`), a pair of files at the same lines; not those
that are compressed or in UTF-16 or UTF-32.
Files of unequal length do not pair; they are read whole, which reports the error.
Cost: one more pass over the files, at the speed of counting newlines (for a quoted csv: of parsing the lines with
quotes); memory O(longest line of a quoted csv), else O(1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from lexmill.base.encodings import WIDE
from lexmill.base.errors import UserError
from lexmill.base.strict import build
from lexmill.compute.workers.executor import Executor, Plain
from lexmill.compute.workers.files import cut_off
from lexmill.corpora.preparing import readers
from lexmill.corpora.preparing.source_files import SourceFiles, Span, Unit, encoding_of
from lexmill.corpora.preparing.text_files import (
    NO_STOP,
    START,
    Advance,
    Place,
    is_compressed,
    lines,
    no_advance,
    open_bytes,
)
from lexmill.params.corpora import Corpus
from lexmill.params.readers import EncodedReader

_BLOCK = 1 << 20
_LATER = 2  # any line but the first, the only one that can have a byte order mark


def large_units(corpus: Corpus, units: Sequence[Unit], files: SourceFiles, piece_bytes: int) -> list[Unit]:
    """The units that are larger than a piece and can be cut."""
    if readers.of_lines(corpus.reader) is None:
        return []
    larger = [unit for unit in units if sum(files.sizes[path] for path in unit[1]) > piece_bytes]
    return [unit for unit in larger if all(_is_plain(corpus, files, path) for path in unit[1])]


def _is_plain(corpus: Corpus, files: SourceFiles, path: str) -> bool:
    """Whether a file is neither compressed nor in a wide encoding, so that it can be read from any line on."""
    assert isinstance(corpus.reader, EncodedReader)
    try:
        return encoding_of(corpus.reader, path) not in WIDE and not is_compressed(files.file(path))
    except OSError:
        return False  # its reader reports why


def find_spans(
    units: Sequence[Unit], files: SourceFiles, executor: Executor, common: Plain, advance: Advance
) -> dict[Unit, list[tuple[Span, int]]]:
    """Return the spans of each unit with their bytes; without the units that are read whole.

    Args:
        units, files: from `large_units`, and the corpus's files.
        executor: scans the ranges.
        common: what pieces share (`pieces.common`).
        advance: called with the number of bytes scanned.
    """
    ranges = {
        unit: [_ranges(files.file(path), executor.piece_bytes // len(unit[1])) for path in unit[1]] for unit in units
    }
    items = [
        {"path": path, "begin": begin, "end": end}
        for unit in units
        for path, of_file in zip(unit[1], ranges[unit], strict=True)
        for begin, end in of_file
    ]
    found = executor.map(look, common, items, advance)
    joined = {
        unit: _joined([list(zip(of_file, islice(found, len(of_file)), strict=True)) for of_file in ranges[unit]])
        for unit in units
    }
    rest = next(found, None)  # reaching the end raises the errors of all pieces
    assert rest is None
    return {unit: spans for unit, spans in joined.items() if len(spans) > 1}


def _ranges(path: Path, size: int) -> list[tuple[int, int]]:
    end, size = path.stat().st_size, max(1, size)
    return [(begin, min(begin + size, end)) for begin in range(0, end, size)]


def look(item: Plain, advance: Advance) -> Plain:
    """Scan one range (`lexmill.compute.workers`).

    Returns:
        `lines`, how many begin in it; `offset`, where the first does; `after`, whether a record continues after the
        last if none and if one continued before the first.

    Raises:
        UserError: the file does not exist or cannot be read.
        RetryableError: the file ends inside the range.
    """
    errors: list[str] = []
    corpus = build(Corpus, item["corpus"], errors)
    assert corpus is not None, errors
    form = readers.of_lines(corpus.reader)
    assert form is not None
    assert isinstance(corpus.reader, EncodedReader)
    path = Path(item["source"]) / item["path"]
    offset, last, count = _line_starts(path, item["begin"], item["end"], advance)
    states = [False, True]
    if form.inside_after is not None and count:
        begin, some = (last, 1) if form.by_last_line else (offset, count)
        encoding = encoding_of(corpus.reader, item["path"])
        # An erroneous line ends the reading of its file, so the lines after it do not matter.
        with suppress(UserError):
            place = Place(begin, _LATER if begin else 1)
            for _, line in islice(lines(path, encoding, no_advance, place=place), some):
                states = [form.inside_after(line, inside) for inside in states]
    return {"lines": count, "offset": offset, "after": states}


def _line_starts(path: Path, begin: int, end: int, advance: Advance) -> tuple[int, int, int]:
    """The offsets of the first and the last line that begin in a range of bytes, and the number of such lines."""
    starts = [0] if begin == 0 else []
    count = len(starts)
    at = max(begin - 1, 0)
    with open_bytes(path, offset=at) as stream:
        # A line begins after a newline.
        while at < end - 1 and (block := stream.read(min(_BLOCK, end - 1 - at))):
            if newlines := block.count(b"\n"):
                count += newlines
                starts += [at + block.index(b"\n") + 1, at + block.rindex(b"\n") + 1]
                starts = [starts[0], starts[-1]]
            at += len(block)
            advance(len(block))
        if not stream.read(1):
            raise cut_off(path, end)
    if begin == 0:
        advance(1)  # all other ranges were read from the byte before them
    return (starts[0], starts[-1], count) if starts else (begin, begin, 0)


_Look = tuple[tuple[int, int], dict[str, Any]]


def _joined(looks: Sequence[Sequence[_Look]]) -> list[tuple[Span, int]]:
    """The spans of a unit, from the scanned ranges of its one or two files."""
    totals = [sum(look["lines"] for _, look in of_file) for of_file in looks]
    if len(set(totals)) > 1:
        return []
    found: list[tuple[Span, int]] = []
    others = [_Cursor(of_file) for of_file in looks[1:]]
    number, inside = 1, False
    for (begin, end), look in looks[0]:
        if not look["lines"]:
            if found:
                found[-1] = (found[-1][0], found[-1][1] + end - begin)
            continue
        there = [cursor.before(number) for cursor in others]
        places = (Place(look["offset"], number), *(place for place, _ in there))
        if found:
            found[-1] = (found[-1][0]._replace(stop=number), found[-1][1])
        found.append((Span(places, number, NO_STOP, inside), end - begin + sum(size for _, size in there)))
        number += look["lines"]
        inside = look["after"][inside]
    if found:
        found[-1] = (found[-1][0], found[-1][1] + sum(cursor.rest() for cursor in others))
    return found


class _Cursor:
    """The ranges of the second file of a pair, in order."""

    def __init__(self, looks: Sequence[_Look]) -> None:
        self._looks: Iterator[_Look] = iter(looks)
        self._place, self._next = START, 1
        self._size = 0

    def before(self, number: int) -> tuple[Place, int]:
        """The last known place at or before a line, and the bytes of the ranges passed since the last call."""
        while self._next <= number and (following := next(self._looks, None)) is not None:
            (begin, end), look = following
            self._size += end - begin
            if look["lines"]:
                self._place = Place(look["offset"], self._next)
                self._next += look["lines"]
        size, self._size = self._size, 0
        return self._place, size

    def rest(self) -> int:
        """The bytes of the remaining ranges."""
        return self._size + sum(end - begin for (begin, end), _ in self._looks)
