"""Two sides in plain text files, one sentence a line; the n-th lines belong together.

Empty lines are kept, so that a line empty on one side shifts nothing; files are paired in natural order (1, 2, 10) and
each pair must have the same number of lines.
"""

from __future__ import annotations

from collections.abc import Iterator

from lexmill.corpora.preparing.faults import Faults
from lexmill.corpora.preparing.record import Record
from lexmill.corpora.preparing.source_files import SourceFiles, names
from lexmill.corpora.preparing.text_files import Advance, checked_encoding, lines
from lexmill.errors import UserError
from lexmill.params import ParallelTextReader


def read(reader: ParallelTextReader, files: SourceFiles, faults: Faults, advance: Advance) -> Iterator[Record]:
    """Sentence pairs; the group of a pair is its source side."""
    try:
        encoding = checked_encoding(reader.encoding)
        pairs = _file_pairs(reader, files)
    except UserError as fault:
        faults.add(fault)
        return
    named = names(source for source, _ in pairs)
    for pair in pairs:
        for number, text, translation in _line_pairs(files, pair, encoding, faults, advance):
            yield Record(f"{named[pair[0]]}:{number}", None, text, translation)


def _file_pairs(reader: ParallelTextReader, files: SourceFiles) -> list[tuple[str, str]]:
    sides = {"source": files.matching(reader.source), "target": files.matching(reader.target)}
    for side, found in sides.items():
        if not found:
            known = ", ".join(files.paths[:10]) + (" ..." if len(files.paths) > 10 else "")
            patterns = ", ".join(getattr(reader, side))
            raise UserError(f"reader.{side}: no file matches {patterns}; there are: {known}", files.folder)
    both = sorted(set(sides["source"]) & set(sides["target"]))
    if both:
        raise UserError(f"matches reader.source and reader.target; one file cannot be both: {both[0]}", files.folder)
    if len(sides["source"]) != len(sides["target"]):
        counts = f"{len(sides['source'])} source files but {len(sides['target'])} target files"
        raise UserError(f"{counts}; each source file needs its target file", files.folder)
    return list(zip(sides["source"], sides["target"], strict=True))


class _Side:
    """The lines of one side; a fault ends it and is told, and the count goes on to the end."""

    def __init__(self, stream: Iterator[tuple[int, str]], faults: Faults) -> None:
        self._stream, self._faults = stream, faults
        self.count = 0
        self.broken = False

    def next(self) -> str | None:
        try:
            for _, line in self._stream:
                self.count += 1
                return line
        except UserError as fault:
            self._faults.add(fault)
            self.broken = True
        return None


def _line_pairs(
    files: SourceFiles, pair: tuple[str, str], encoding: str, faults: Faults, advance: Advance
) -> Iterator[tuple[int, str, str]]:
    source, target = pair
    left = _Side(lines(files.file(source), encoding, advance), faults)
    right = _Side(lines(files.file(target), encoding, advance), faults)
    while True:
        text, translation = left.next(), right.next()
        if text is None or translation is None:
            break
        yield left.count, text, translation
    # Read on: the other side's own faults and its count belong in the report.
    paired = min(left.count, right.count)
    for side in (left, right):
        while side.next() is not None:
            pass
    if left.count != right.count and not left.broken and not right.broken:
        longer = source if left.count > right.count else target
        counts = f"{source} has {left.count:,} lines but {target} has {right.count:,}"
        faults.add(UserError(f"{counts}; this line has no partner", files.file(longer), paired + 1))
