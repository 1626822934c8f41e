"""Files in the format of SQuAD (Rajpurkar et al. 2016; 2018 with questions that the paragraph does not answer).

    {"version": "v2.0", "data": [{"title": "...", "paragraphs": [{"context": "...", "qas": [
        {"id": "...", "question": "...", "answers": [{"text": "...", "answer_start": 0}], "is_impossible": false}
    ]}]}]}

A question without answers has none in its paragraph. Plausible answers are not read. Memory is the file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from lexmill.base.errors import UserError
from lexmill.corpora.preparing.errors import Errors
from lexmill.corpora.preparing.readers.columns import BadValue, shown, text_of
from lexmill.corpora.preparing.readers.questions import named, of_question
from lexmill.corpora.preparing.record import Record
from lexmill.corpora.preparing.text_files import Advance, TextFile, whole_text
from lexmill.params.readers import SquadReader

_KEYS = b'"paragraphs"', b'"qas"'


def looks_like(beginning: bytes) -> bool:
    """Return whether a file that begins like this is in the format of SQuAD."""
    return beginning.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") and any(key in beginning for key in _KEYS)


def read(reader: SquadReader, name: str, file: TextFile, *, errors: Errors, advance: Advance) -> Iterator[Record]:
    """Yield the questions of one file; a record's id is `<file>:<the question's id>`."""
    try:
        seen: set[str] = set()
        for place, title, context, question in questions(file, advance, errors):
            try:
                key, answers, text = _parts(question, seen)
                if context is None:
                    continue
                group = title if reader.group == "document" else None
                record = Record(f"{name.replace(':', '_')}:{key}", group, context, text)
                yield of_question(record, answers, reader)
            except BadValue as error:
                errors.add(UserError(f"{place}: {error}", file.path))
    except UserError as error:
        errors.add_last(error)


def questions(
    file: TextFile, advance: Advance, errors: Errors
) -> Iterator[tuple[str, str, str | None, Mapping[str, Any]]]:
    """Yield (place in the file, title, context, object of the question) for each question.

    Without a title a document is named by its number. What is not in this format goes to `errors` with its place and is
    passed over; the context of a paragraph that lacks it is None.

    Raises:
        UserError: not JSON.
    """
    text = whole_text(*file, advance, instead="split it into several")
    try:
        data = json.loads(text)
    except json.JSONDecodeError as raised:
        message = f"not valid JSON: {raised.msg} (column {raised.colno})"
        raise UserError(message, file.path, raised.lineno) from None
    except (RecursionError, ValueError):
        raise UserError("not valid JSON: nested too deep, or a number too long", file.path) from None
    for place, document in _each(data, "data", "", file, errors):
        title = document.get("title")
        title = title if isinstance(title, str) and title else f"{file.path.name} {place}"
        for where, paragraph in _each(document, "paragraphs", place, file, errors):
            context = None
            try:
                context = text_of("context", paragraph.get("context"))
            except BadValue as error:
                errors.add(UserError(f"{where}: {error}", file.path))
            for at, question in _each(paragraph, "qas", where, file, errors):
                yield at, title, context, question


def _each(parent: Any, key: str, place: str, file: TextFile, errors: Errors) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the objects of a list with their places; what is no list or object is an error."""
    children = parent.get(key) if isinstance(parent, dict) else None
    where = f"{place}.{key}" if place else key
    if not isinstance(children, list):
        message = f"{where} is {shown(children)}, not a list: the file is not in SQuAD's format"
        errors.add(UserError(message, file.path))
        return
    for i, child in enumerate(children):
        if isinstance(child, dict):
            yield f"{where}[{i}]", child
        else:
            errors.add(UserError(f"{where}[{i}] is {shown(child)}, not an object", file.path))


def _parts(question: Mapping[str, Any], seen: set[str]) -> tuple[str, list[tuple[str, int | None]], str]:
    """Return a question's id, answers and text; raise `BadValue` with all that is wrong with them."""
    checks: tuple[Callable[[], Any], ...] = (
        lambda: _key(question, seen),
        lambda: _answers(question),
        lambda: text_of("question", question.get("question")),
    )
    found, wrong = [], []
    for check in checks:
        try:
            found.append(check())
        except BadValue as error:
            wrong.append(str(error))
    if wrong:
        raise BadValue("; ".join(wrong))
    key, answers, text = found
    return key, answers, text


def _key(question: Mapping[str, Any], seen: set[str]) -> str:
    """Return a question's id, once."""
    key = question.get("id")
    if isinstance(key, int) and not isinstance(key, bool):
        key = str(key)
    if not isinstance(key, str) or not key:
        raise BadValue(f"'id' holds {shown(key)}, not the question's name")
    text_of("id", key)
    if key in seen:
        raise BadValue(f"the id {shown(key)} occurs before; each question needs its own")
    seen.add(key)
    return key


def _answers(question: Mapping[str, Any]) -> list[tuple[str, int | None]]:
    impossible = question.get("is_impossible", False)
    if "answers" not in question and not impossible:
        raise BadValue("it has no 'answers'; an empty list says that there is none")
    found = named("answers", question.get("answers"))
    if found and impossible:
        raise BadValue("is_impossible is true, but it has answers")
    return found
