"""Answers as spans of a context: where they are, and where they are once the context was rewritten."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

_SIZES: dict[str, Callable[[str], int]] = {
    "characters": len,
    "utf-16": lambda text: len(text.encode("utf-16-le")) // 2,
    "bytes": lambda text: len(text.encode("utf-8")),
}
_MARK = "|"  # joins no character, and is no white space


class Answer(NamedTuple):
    """A span of a context: its text and where it starts, in characters (Unicode code points)."""

    text: str
    start: int


class NotFound(Exception):
    """An answer that is not where it should be; the message says why."""


def located(context: str, text: str, start: int | None, offsets: str) -> Answer:
    """Return an answer without white space at its ends.

    Args:
        context, text: the context, and the answer's text.
        start: where the answer begins; None: unknown.
        offsets: what `start` counts: characters, utf-16 or bytes; search: it is ignored, the first occurrence is taken.

    Raises:
        NotFound: it is not there; says where it is, or in which unit the start would be right.
    """
    bare = text.strip()
    if not bare:
        raise NotFound("an answer is empty; a question without an answer has none")
    if offsets == "search":
        at = context.find(bare)
        if at < 0:
            raise NotFound(f"the answer {_short(bare)} is not in the context")
        return Answer(bare, at)
    if start is None:
        how = "name its key, or set reader.offsets: search (init: --offsets search)"
        raise NotFound(f"the answer {_short(bare)} has no start; {how}")
    found = _in_characters(context, start, offsets)
    if found is not None and context.startswith(text, found):
        return Answer(bare, found + len(text) - len(text.lstrip()))
    raise NotFound(f"the answer {_short(text)} does not begin at {start}{_instead(context, text, start, offsets)}")


def _in_characters(context: str, start: int, offsets: str) -> int | None:
    """Return an offset in characters; None where it is outside of the context or inside a character."""
    if start < 0:
        return None
    if offsets == "characters":
        return start if start <= len(context) else None
    codec, unit = ("utf-16-le", 2) if offsets == "utf-16" else ("utf-8", 1)
    data = context.encode(codec)
    if start * unit > len(data):
        return None
    try:
        return len(data[: start * unit].decode(codec))
    except UnicodeDecodeError:
        return None


def _instead(context: str, text: str, start: int, offsets: str) -> str:
    """Return what would be right."""
    for other in _SIZES:
        found = _in_characters(context, start, other) if other != offsets else None
        if found is not None and context.startswith(text, found):
            return f", but it does in {other}: set reader.offsets: {other} (init: --offsets {other})"
    at = context.find(text)
    return f"; it begins at {_SIZES[offsets](context[:at])}" if at >= 0 else "; it is nowhere in the context"


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")


def moved(context: str, answers: Sequence[Answer], change: Callable[[str], str]) -> tuple[Answer, ...]:
    """Return the answers in `change(context)`; one that is nowhere in it is left out.

    A change can act across the borders of an answer, as where a normal form joins two characters: then the occurrence
    that is nearest to the old place is taken.
    """
    after, found = change(context), []
    for answer in answers:
        text = change(answer.text)
        start = len(change(context[: answer.start] + _MARK)) - len(_MARK)
        if text and not after.startswith(text, start):
            start = _nearest(after, text, start)
        if text and start >= 0:
            found.append(Answer(text, start))
    return tuple(found)


def _nearest(context: str, text: str, place: int) -> int:
    """Return the start of the occurrence nearest to a place, the earlier of two; -1: there is none."""
    before = context.rfind(text, 0, max(0, place) + len(text))
    after = context.find(text, max(0, place))
    if before < 0 or after < 0:
        return max(before, after)
    return before if place - before <= after - place else after
