"""Lines that hold a label and a text: `DESC:manner How did serfdom develop ?`, `__label__x some text`."""

from __future__ import annotations

from collections.abc import Iterator

from lexmill.base.errors import UserError
from lexmill.base.shown import value_text
from lexmill.corpora.preparing.errors import Errors
from lexmill.corpora.preparing.readers.columns import BadValue
from lexmill.corpora.preparing.readers.labels import in_form
from lexmill.corpora.preparing.record import Record
from lexmill.corpora.preparing.source_files import Span
from lexmill.corpora.preparing.text_files import Advance, TextFile, lines
from lexmill.params.readers import LabelledLinesReader

_CHECK = "check reader.separator and reader.label_first (init: --separator, --label-last)"


def read(
    reader: LabelledLinesReader, name: str, file: TextFile, *, span: Span, errors: Errors, advance: Advance
) -> Iterator[Record]:
    """Yield the labelled texts of one file, each its own group; blank lines are skipped."""
    shown = value_text(reader.separator)
    try:
        for number, line in lines(*file, advance, place=span.places[0], stop=span.stop):
            if not line.strip():
                continue
            cut = line.partition if reader.label_first else line.rpartition
            before, separator, after = cut(reader.separator)
            label, text = (before.strip(), after) if reader.label_first else (after.strip(), before)
            if separator and label:
                try:
                    yield Record(f"{name}:{number}", None, text, label=in_form(label, reader.label_form))
                except BadValue as error:
                    errors.add(UserError(str(error), file.path, number))
                continue
            side = "before the first" if reader.label_first else "after the last"
            wrong = f"there is no label {side} {shown}" if separator else f"there is no {shown} between label and text"
            errors.add(UserError(f"{wrong}; {_CHECK}", file.path, number))
    except UserError as error:
        errors.add_last(error)
