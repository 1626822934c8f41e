"""Tags that mark entities: how the schemes write them, which sequences are valid, which entities they hold.

    none    a tag says something of its word alone, as a part of speech; nothing is checked or converted
    iob1    I-type; B-type only where an entity touches one of its type (Ramshaw and Marcus 1995)
    iob2    B-type begins each entity, I-type continues it
    bioes   B-type begins, I-type continues and E-type ends an entity of several words; S-type is one of one word

A word outside of all entities has the tag O.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

Scheme = Literal["none", "iob1", "iob2", "bioes"]
Entity = tuple[str, int, int]  # its type, its first word, and the word after its last

OUTSIDE = "O"
_PREFIXES = {"iob1": "BI", "iob2": "BI", "bioes": "BIES"}


class BadTags(Exception):
    """A sequence that its scheme does not allow; `word` is the first wrong one, the message says why."""

    def __init__(self, word: int, message: str) -> None:
        super().__init__(message)
        self.word = word


def parts(tag: str) -> tuple[str, str]:
    """Return the prefix and the type of a tag: `B-per` -> ("B", "per"), `O` -> ("O", "")."""
    prefix, _, kind = tag.partition("-")
    return prefix, kind


def allowed(before: str | None, after: str | None, scheme: Scheme) -> bool:
    """Return whether a tag may follow another in a scheme; None: the start, or the end, of a sequence."""
    if scheme == "none":
        return True
    first, first_kind = parts(before or OUTSIDE)
    second, second_kind = parts(after or OUTSIDE)
    if scheme == "bioes":
        if first in ("B", "I"):
            return second in ("I", "E") and second_kind == first_kind
        return second not in ("I", "E")
    # The tag that is only allowed inside an entity of its type.
    return second != ("I" if scheme == "iob2" else "B") or (first != OUTSIDE and first_kind == second_kind)


def check(tags: Sequence[str], scheme: Scheme) -> None:
    """Raise `BadTags` for a sequence that the scheme does not allow."""
    if scheme == "none":
        return
    for word, tag in enumerate(tags):
        prefix, kind = parts(tag)
        if tag != OUTSIDE and not (len(prefix) == 1 and prefix in _PREFIXES[scheme] and kind):
            forms = ", ".join(f"{one}-type" for one in _PREFIXES[scheme])
            raise BadTags(word, f"'{tag}' is no tag of the scheme {scheme}: {forms} or {OUTSIDE}")
    bounds = [None, *tags, None]
    for word, (before, after) in enumerate(pairwise(bounds)):
        if not allowed(before, after, scheme):
            where = f"cannot follow '{before}'" if before else "cannot begin a sentence"
            wrong = f"'{after}' {where}" if after else f"'{before}' cannot end a sentence"
            raise BadTags(min(word, len(tags) - 1), f"{wrong} in the scheme {scheme}")


def entities(tags: Sequence[str]) -> list[Entity]:
    """Return the entities of a sequence, valid or not, as `conlleval` and seqeval's default mode count them.

    An entity begins at B or S, where the type changes, and after O, E or S. It ends before the next begins, before O,
    and after E or S.
    """
    found: list[Entity] = []
    kind, start, over = "", 0, True  # of the entity that is open; over: none is
    for word, tag in enumerate([*tags, OUTSIDE]):
        prefix, now = parts(tag)
        if not over and (prefix in (OUTSIDE, "B", "S") or now != kind):
            found.append((kind, start, word))
            over = True
        if prefix == OUTSIDE:
            continue
        if over:
            kind, start, over = now, word, False
        if prefix in ("E", "S"):
            found.append((kind, start, word + 1))
            over = True
    return found


def written(found: Sequence[Entity], words: int, scheme: Scheme) -> list[str]:
    """Return the tags of so many words with these entities, which do not overlap, in iob2 or bioes."""
    tags = [OUTSIDE] * words
    for kind, start, stop in found:
        tags[start:stop] = [f"B-{kind}", *(f"I-{kind}" for _ in range(start + 1, stop))]
        if scheme == "bioes":
            tags[stop - 1] = f"S-{kind}" if stop - start == 1 else f"E-{kind}"
    return tags


def to_iob2(tags: Sequence[str], scheme: Scheme) -> list[str]:
    """Return valid tags of a scheme as iob2; those of `none` as they are."""
    return list(tags) if scheme in ("none", "iob2") else written(entities(tags), len(tags), "iob2")
