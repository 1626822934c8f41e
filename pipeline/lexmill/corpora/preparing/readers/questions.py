"""Questions of tables and records: a question, its context and the answers in it, in the forms that are published."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from lexmill.corpora.preparing.answers import Answer, NotFound, located
from lexmill.corpora.preparing.readers.columns import BadValue, shown, text_of
from lexmill.corpora.preparing.record import Record
from lexmill.params.readers import QuestionsReader, SquadReader

Named = tuple[str, int | None]  # an answer's text, and its start


def record(name: str, group: str | None, reader: QuestionsReader, row: Mapping[str, Any]) -> Record:
    """Return the record of a row.

    Args:
        name, group: of the record.
        reader: the column of each role.
        row: its values by role. Answers are a text, a list of texts, a list of objects `{"text", "start"}` (or
            `answer_start`), or one object with a list for each; nothing or an empty list: no answer.

    Raises:
        BadValue: a value is none of these, or an answer is not where its start says.
    """
    question, context = (text_of(column, row[role]) for role, column in _texts(reader))
    answers = _with_starts(reader, named(reader.answers, row["answers"]), row)
    return of_question(Record(name, group, context, question), answers, reader)


def _texts(reader: QuestionsReader) -> tuple[tuple[str, str], ...]:
    return ("question", reader.question), ("context", reader.context)


def of_question(record: Record, answers: Sequence[Named], reader: QuestionsReader | SquadReader) -> Record:
    """Return the record with its answers; one whose answers are all not found is `lost` where those are removed.

    Raises:
        BadValue: an answer is not where its start says, and the reader takes that for an error.
    """
    found: list[Answer] = []
    for text, start in answers:
        try:
            found.append(located(record.text, text, start, reader.offsets))
        except NotFound as error:
            if reader.unmatched == "error":
                how = "reader.unmatched: remove (init: --unmatched remove) leaves such answers out"
                raise BadValue(f"{error}; {how}") from None
    record.answers, record.lost = tuple(found), bool(answers) and not found
    return record


def named(column: str, value: Any) -> list[Named]:
    """Return the answers in a value, as texts with their starts; raise `BadValue`."""
    if value is None or value == "":
        return []
    if isinstance(value, str):
        return [(text_of(column, value), None)]
    if isinstance(value, Mapping):
        texts, starts = value.get("text"), value.get("answer_start", value.get("start"))
        if not isinstance(texts, list) or not isinstance(starts, list):
            raise BadValue(f"'{column}' is {shown(value)}; it needs lists 'text' and 'answer_start'")
        return joined(column, [text_of(f"{column}.text", text) for text in texts], starts)
    if not isinstance(value, list):
        raise BadValue(f"'{column}' holds {shown(value)}, not answers")
    found: list[Named] = []
    for number, one in enumerate(value, start=1):
        if isinstance(one, str):
            found.append((text_of(column, one), None))
        elif isinstance(one, Mapping) and "text" in one:
            text = text_of(f"{column}' (answer {number}) 'text", one["text"])
            found.append((text, _start(column, one.get("answer_start", one.get("start")))))
        else:
            raise BadValue(f"answer {number} of '{column}' is {shown(one)}; it needs 'text' and 'start'")
    return found


def joined(column: str, texts: Sequence[str], starts: Sequence[Any]) -> list[Named]:
    """Return texts with their starts; raise `BadValue` where they differ in number."""
    if len(texts) != len(starts):
        raise BadValue(f"'{column}' has {len(texts)} answers but {len(starts)} starts")
    return [(text, _start(column, start)) for text, start in zip(texts, starts, strict=True)]


def _with_starts(reader: QuestionsReader, answers: list[Named], row: Mapping[str, Any]) -> list[Named]:
    if reader.start is None:
        return answers
    starts = row["start"]
    if not isinstance(starts, list):
        starts = [] if starts is None or not answers else [starts]
    return joined(reader.start, [text for text, _ in answers], starts)


def _start(column: str, value: Any) -> int | None:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value % 1 != 0:
        raise BadValue(f"a start in '{column}' is {shown(value)}, not a whole number")
    return int(value)
