"""Parallel plain text files, one sentence a line; the n-th lines form a pair.

Empty lines are kept, so that an empty line on one side shifts nothing; files are paired in natural order (1, 2, 10) and
each pair must have the same number of lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lexmill.base.errors import UserError
from lexmill.corpora.preparing.errors import Errors
from lexmill.corpora.preparing.record import Record
from lexmill.corpora.preparing.source_files import SourceFiles, Span, Unit, listed, names
from lexmill.corpora.preparing.text_files import Advance, TextFile, lines
from lexmill.params.readers import ParallelTextReader


def units(reader: ParallelTextReader, files: SourceFiles) -> list[Unit]:
    """Return the pairs of files; raise `UserError` where they do not pair."""
    pairs = _file_pairs(reader, files)
    named = names(source for source, _ in pairs)
    return [(named[pair[0]], pair) for pair in pairs]


def read(
    name: str, paths: Sequence[str], files: Sequence[TextFile], *, span: Span, errors: Errors, advance: Advance
) -> Iterator[Record]:
    """Yield the sentence pairs of one pair of files; the group of a pair is its source side."""
    left, right = (
        _Side(lines(*file, advance, place=place, stop=span.stop), span.first, errors)
        for file, place in zip(files, span.places, strict=True)
    )
    while True:
        text, translation = left.next(), right.next()
        if text is None or translation is None:
            break
        yield Record(f"{name}:{left.count}", None, text, translation)
    # Continue to the end: the report needs the other side's errors and line count.
    paired = min(left.count, right.count)
    for side in (left, right):
        while side.next() is not None:
            pass
    if left.count != right.count and not left.broken and not right.broken:
        longer = files[0] if left.count > right.count else files[1]
        counts = f"{paths[0]} has {left.count:,} lines but {paths[1]} has {right.count:,}"
        errors.add(UserError(f"{counts}; this line has no partner", longer.path, paired + 1))


def _file_pairs(reader: ParallelTextReader, files: SourceFiles) -> list[tuple[str, str]]:
    sides = {"source": files.matching(reader.source), "target": files.matching(reader.target)}
    for side, found in sides.items():
        if not found:
            known = listed(files.paths)
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
    """The lines of one side, counted to the end; an error is added to `errors` and ends it."""

    def __init__(self, stream: Iterator[tuple[int, str]], first: int, errors: Errors) -> None:
        self._stream, self._first, self._errors = stream, first, errors
        self.count = 0
        self.broken = False

    def next(self) -> str | None:
        try:
            for number, line in self._stream:
                self.count = number
                if number >= self._first:
                    return line
        except UserError as error:
            self._errors.add_last(error)
            self.broken = True
        return None
