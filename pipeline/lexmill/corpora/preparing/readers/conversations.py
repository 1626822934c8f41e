"""Conversations of tables and records: messages, or a prompt and its answer, with a worse answer or without."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lexmill.corpora.preparing.readers.columns import BadValue, shown, text_of
from lexmill.corpora.preparing.record import Record

Turn = tuple[str, str]  # role and text

_KEYS = (("role", "content"), ("from", "value"))
_ROLES = {role: role for role in ("system", "user", "assistant")} | {"human": "user", "gpt": "assistant"}


def record(name: str, group: str | None, columns: Mapping[str, str], row: Mapping[str, Any]) -> Record:
    """Return the record of a row.

    Args:
        name, group: of the record.
        columns: the column of each role: messages, or prompt and answer; rejected.
        row: its values by role. A message is `{"role": system, user or assistant, "content": text}`; `from` and
            `value`, with human and gpt, are read too.

    Raises:
        BadValue: a value is no text or messages, or the conversation does not end with an answer to a user.
    """
    if "messages" in columns:
        turns, whole = _messages(columns["messages"], row["messages"]), columns["messages"]
    else:
        turns, whole = _turns(columns["prompt"], row["prompt"], "user"), columns["answer"]
        turns = _follow(turns, _turns(columns["answer"], row["answer"], "assistant"), columns["answer"])
    *before, answer = turns
    if answer[0] != "assistant":
        raise BadValue(f"'{whole}' ends with a message of the {answer[0]}; an answer of the assistant must be last")
    if not any(role == "user" for role, _ in before):
        raise BadValue(f"'{whole}' answers nobody: no message of the user comes before the last one")
    if any(role == "system" for role, _ in turns[1:]):
        raise BadValue(f"'{whole}' has a message of the system that is not the first")
    rejected = None
    if "rejected" in columns:
        column = columns["rejected"]
        last = _follow(before, _turns(column, row["rejected"], "assistant"), column)[len(before) :]
        if [role for role, _ in last] != ["assistant"]:
            raise BadValue(f"'{column}' is not one answer to the same messages")
        rejected = last[0][1]
    text = " ".join(content for _, content in before)
    return Record(name, group, text, answer[1], turns=tuple(before), rejected=rejected)


def _follow(before: list[Turn], more: list[Turn], column: str) -> list[Turn]:
    """Return the messages after others; where they repeat those, as published preferences do, only once."""
    if len(more) == 1:
        return [*before, *more]
    if more[: len(before)] != before:
        raise BadValue(f"'{column}' does not begin with the messages that it answers")
    return more


def _turns(column: str, value: Any, role: str) -> list[Turn]:
    """Return messages, or a text as one message of a role."""
    return _messages(column, value) if isinstance(value, list) else [(role, text_of(column, value))]


def _messages(column: str, value: Any) -> list[Turn]:
    if not isinstance(value, list) or not value:
        raise BadValue(f"'{column}' holds {shown(value)}, not a list of messages")
    found = []
    for number, message in enumerate(value, start=1):
        keys = next((keys for keys in _KEYS if isinstance(message, dict) and set(keys) <= message.keys()), None)
        if keys is None:
            raise BadValue(f"message {number} of '{column}' is {shown(message)}; it needs 'role' and 'content'")
        role, content = message[keys[0]], message[keys[1]]
        if role not in _ROLES:
            raise BadValue(f"message {number} of '{column}' has role {shown(role)}, not system, user or assistant")
        found.append((_ROLES[role], text_of(f"{column}' (message {number}) '{keys[1]}", content)))
    return found
