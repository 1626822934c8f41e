"""The first half of prepare: read, normalise, filter and measure one piece of the corpus, independently of the others.

Only decisions by a record's own text are made here; duplicates and leakage depend on the whole corpus. A piece leaves
two files in the scratch folder, or three with near duplicates:

    <piece>.jsonl        the records that passed the filters, as they will be stored
    <piece>.rows         a `Row` for each
    <piece>.signatures   a MinHash signature for each

Cost: reads the piece once; memory O(largest document).
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from lexmill.base.strict import build
from lexmill.compute.workers.executor import Advance, Plain
from lexmill.compute.workers.files import await_file, cut_off, own_name
from lexmill.corpora.prepared import SPLITS
from lexmill.corpora.preparing import filters, readers
from lexmill.corpora.preparing.deduplicate import Signatures
from lexmill.corpora.preparing.errors import Errors
from lexmill.corpora.preparing.record import group_of, normalize, normalize_record
from lexmill.corpora.preparing.removals import Removals
from lexmill.corpora.preparing.source_files import WHOLE, SourceFiles, Span, Unit
from lexmill.corpora.preparing.splits import split_of
from lexmill.corpora.preparing.text_files import Place
from lexmill.corpora.preparing.writing import ROW, Row, json_line, to_json
from lexmill.params.corpora import Corpus, Splits

_BUFFER = 1 << 18
_ROWS_AT_ONCE = 1024


def common(corpus: Corpus, source: Path, scratch: Path) -> Plain:
    """What all pieces of a corpus share."""
    return {"corpus": dataclasses.asdict(corpus), "source": str(source.absolute()), "scratch": str(scratch.absolute())}


def cut(
    units: Sequence[Unit], files: SourceFiles, piece_bytes: int, spans: Mapping[Unit, Sequence[tuple[Span, int]]]
) -> list[Plain]:
    """Return pieces in the corpus's order: each a span, or whole units of at least `piece_bytes` together.

    Args:
        units, files: all units of the corpus, and its files.
        piece_bytes: the size of a piece of whole units.
        spans: of the units that are cut, with the bytes of each (`spans.find_spans`).
    """
    pieces: list[Plain] = []
    size = piece_bytes
    for unit in units:
        if unit in spans:
            for span, count in spans[unit]:
                pieces.append({"piece": len(pieces), "units": [unit], "span": span, "bytes": count})
            size = piece_bytes
            continue
        if size >= piece_bytes:
            pieces.append({"piece": len(pieces), "units": []})
            size = 0
        pieces[-1]["units"].append(unit)
        size += sum(files.sizes[path] for path in unit[1])
    for piece in pieces:
        piece["seen"] = {path: _size(files.file(path)) for _, paths in piece["units"] for path in paths}
    return pieces


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0  # its reader reports why


def prepare_piece(item: Plain, advance: Advance) -> Plain:
    """Prepare one piece (`lexmill.compute.workers`); return the counts read and removed, the errors and its files.

    Raises:
        RetryableError: a file has fewer bytes here than in the stage.
    """
    errors: list[str] = []
    corpus = build(Corpus, item["corpus"], errors)
    assert corpus is not None, errors
    source, scratch = Path(item["source"]), Path(item["scratch"])
    for path, size in item["seen"].items():
        if (source / path).exists() and _size(source / path) < size:
            raise cut_off(source / path, size)
    units = [(name, tuple(paths)) for name, paths in item["units"]]
    name = own_name(f"{item['piece']:06d}")
    if "span" not in item:
        return {"name": name, **_read(corpus, units, WHOLE, source=source, stem=scratch / name, advance=advance)}
    places, *rest = item["span"]
    span, share = Span(tuple(Place(*place) for place in places), *rest), _Share(item["bytes"], advance)
    found = _read(corpus, units, span, source=source, stem=scratch / name, advance=share.read)
    share.finish()
    return {"name": name, **found}


class _Share:
    """Reports exactly a piece's share of its file, although its span reads slightly more or fewer bytes."""

    def __init__(self, size: int, advance: Advance) -> None:
        self._left, self._advance = size, advance

    def read(self, count: int) -> None:
        count = min(count, self._left)
        self._left -= count
        self._advance(count)

    def finish(self) -> None:
        self.read(self._left)


def _read(corpus: Corpus, units: Sequence[Unit], span: Span, *, source: Path, stem: Path, advance: Advance) -> Plain:
    errors, raw, masked = Errors(), 0, Counter[str]()
    steps = filters.active(corpus)
    always, removals = filters.of_all_sets(steps), Removals(steps)
    splits, sets = normalized_pins(corpus), list(SPLITS)
    sign = Signatures(corpus.deduplicate) if corpus.deduplicate.near else None
    suffixes = (".jsonl", ".rows", *([".signatures"] if sign else []))
    with ExitStack() as stack:
        lines, rows, *signatures = (
            stack.enter_context(open(stem.with_name(stem.name + suffix), "xb", _BUFFER)) for suffix in suffixes
        )
        for record in readers.read_units(corpus, source, units, errors, advance, span=span):
            raw += 1
            if errors:
                continue  # only to collect the other errors
            normalize_record(record, corpus.kind, corpus.normalization)
            if corpus.filters.personal_data == "mask":
                filters.mask(record, masked)
            given = record.split is not None
            step = next((step for step, hits in (always if given else steps).items() if hits(record)), None)
            if step is not None:
                removals.add(step, record.shown)
                continue
            group = group_of(record)
            stored = to_json(record, group)
            line = json_line(stored)
            lines.write(line)
            split = record.split or split_of(group, splits)
            if split not in sets:
                sets.append(split)
            rows.write(ROW.pack(*Row.of(stored, sets.index(split), line, given=given)))
            if sign:
                signatures[0].write(sign(record))
    sizes = {suffix: stem.with_name(stem.name + suffix).stat().st_size for suffix in suffixes}
    found = {"raw": raw, "sizes": sizes, "masked": dict(masked), "sets": sets}
    return {**found, "removals": removals.as_plain(), "errors": errors.as_plain(source)}


def normalized_pins(corpus: Corpus) -> Splits:
    """Return the splits with pinned groups in the corpus's normal form."""
    pinned = {normalize(group, corpus.normalization): split for group, split in corpus.splits.pinned.items()}
    return dataclasses.replace(corpus.splits, pinned=pinned)


class PreparedPiece:
    """The files of a piece, on the worker's machine or another.

    Args:
        scratch: the folder of the files.
        result: from `prepare_piece`.
        signature_bytes: the size of a signature; 0: there are none.

    Attributes:
        sets: the names of its splits, by the index in a `Row`.
        trained: the number of its records in train, once known.

    Raises:
        RetryableError: a file is not (yet) as the worker wrote it.
    """

    def __init__(self, scratch: Path, result: Plain, signature_bytes: int) -> None:
        self.sets: list[str] = result["sets"]
        self.trained = 0
        self._stem = scratch / result["name"]
        self._signature_bytes = signature_bytes
        for suffix, size in result["sizes"].items():
            await_file(self._path(suffix), size)

    def _path(self, suffix: str) -> Path:
        return self._stem.with_name(self._stem.name + suffix)

    def rows(self) -> Iterator[tuple[int, Row, bytes]]:
        """Yield each record's line offset, row and signature."""
        offset = 0
        with ExitStack() as stack:
            rows = stack.enter_context(open(self._path(".rows"), "rb"))
            near = self._signature_bytes
            signatures = stack.enter_context(open(self._path(".signatures"), "rb")) if near else None
            while block := rows.read(_ROWS_AT_ONCE * ROW.size):
                for row in map(Row._make, ROW.iter_unpack(block)):
                    yield offset, row, signatures.read(near) if signatures else b""
                    offset += row.line

    def lines(self) -> Lines:
        """Open its lines."""
        return Lines(self._path(".jsonl"))


class Lines:
    """Lines of a file by offset and size."""

    def __init__(self, path: Path) -> None:
        self._stream = open(path, "rb", _BUFFER)  # noqa: SIM115

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_error: Any) -> None:
        self._stream.close()

    def read(self, offset: int, size: int) -> bytes:
        """One line."""
        self._stream.seek(offset)
        line = self._stream.read(size)
        assert len(line) == size
        assert line.endswith(b"\n")
        return line
