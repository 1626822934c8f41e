"""Sentence pairs of gettext catalogues: `.po` files, and the `.mo` files that are compiled from them.

A message is the source and its translation the target. Fuzzy, obsolete and untranslated messages are skipped; of one
with plural forms the first form translates the singular and the last the plural. Memory: the whole of one file.
"""

from __future__ import annotations

import re
import struct
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import polib

from lexmill.base.budgets import MAX_DOCUMENT_BYTES, MIB
from lexmill.base.errors import UserError
from lexmill.base.shown import value_text
from lexmill.corpora.preparing.errors import Errors
from lexmill.corpora.preparing.readers.xml_pairs import matching
from lexmill.corpora.preparing.record import Record
from lexmill.corpora.preparing.source_files import LineNames
from lexmill.corpora.preparing.text_files import Advance, error_of_reading, open_bytes

_COMPILED = {b"\xde\x12\x04\x95": "<", b"\x95\x04\x12\xde": ">"}  # how an .mo file begins -> its byte order


def read(languages: Sequence[str], name: str, file: Path, *, errors: Errors, advance: Advance) -> Iterator[Record]:
    """Yield the pairs of one catalogue.

    Args:
        languages: the corpus's. The translations are in that of the header, where it names one, else the second.
        name: the name of the file's records.
        file: the catalogue, perhaps compressed.
        errors: collects the error of the file.
        advance: called with the number of bytes read.
    """
    try:
        catalogue = _parsed(file, advance)
        given = catalogue.metadata.get("Language", "").strip()
        translates = [side for side, wanted in enumerate(languages) if not given or matching(wanted, [given])]
        if not translates:
            both = " and ".join(languages)
            raise UserError(f"its header says Language: {value_text(given)}; the corpus has {both}", file)
    except UserError as error:
        errors.add(error)
        return
    names = LineNames()
    for number, message in enumerate(catalogue, 1):
        if message.obsolete or "fuzzy" in message.flags:
            continue
        for pair in _pairs(message):
            if all(text.strip() for text in pair):
                line = names.next(getattr(message, "linenum", None) or number)
                yield Record(f"{name}:{line}", None, *(pair if translates[-1] else pair[::-1]))


def _pairs(message: polib.POEntry | polib.MOEntry) -> list[tuple[str, str]]:
    forms = [text for _, text in sorted(message.msgstr_plural.items())]
    if not forms:
        return [(message.msgid, message.msgstr or "")]
    plural = [(message.msgid_plural, forms[-1])]
    return [(message.msgid, forms[0]), *plural] if len(forms) > 1 else plural


def _parsed(file: Path, advance: Advance) -> polib.POFile | polib.MOFile:
    """Parse a catalogue; raise `UserError` where it is damaged, too large, or in an unknown encoding."""
    with open_bytes(file, advance) as stream:
        try:
            data = stream.read(MAX_DOCUMENT_BYTES + 1)
        except Exception as error:
            raise error_of_reading(error, file, None) from None
    if len(data) > MAX_DOCUMENT_BYTES:
        raise UserError(f"the catalogue is longer than {MAX_DOCUMENT_BYTES // MIB} MiB; split it", file)
    compiled = data[:4] in _COMPILED
    if compiled:
        _check_sizes(data, file)
    encoding = polib.detect_encoding(data, True)
    # polib takes a name or a text, and of a text it takes every Unicode line break for the end of a line.
    with tempfile.NamedTemporaryFile() as plain:
        plain.write(data)
        plain.flush()
        try:
            return (polib.mofile if compiled else polib.pofile)(plain.name, encoding=encoding)
        except UnicodeDecodeError as error:
            raise UserError(f"not {encoding}, the encoding of its header: {error.reason}", file) from None
        except (OSError, struct.error, ValueError, LookupError) as error:
            at = re.search(r"\(line (\d+)\)(?:: (.*))?", str(error))
            why = "damaged" if compiled else at[2] if at and at[2] else "not what a message of a .po file looks like"
            raise UserError(f"not a gettext catalogue: {why}", file, int(at[1]) if at else None) from None


def _check_sizes(data: bytes, file: Path) -> None:
    """Raise `UserError` where the texts of an .mo file are longer than the file: each is held in memory."""
    order = _COMPILED[data[:4]]
    try:
        count, *tables = struct.unpack_from(f"{order}3I", data, 8)
        if count > len(data) // 16:
            raise UserError("not a gettext catalogue: damaged", file)
        lengths = [length for at in tables for length, _ in struct.iter_unpack(f"{order}2I", data[at : at + 8 * count])]
    except struct.error:
        lengths = [len(data)]
    if sum(lengths) >= len(data):
        raise UserError("not a gettext catalogue: damaged", file)
