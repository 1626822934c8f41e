"""The languages of a user's files: said by an option, else read from the names of files or columns, never guessed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lexmill.base.errors import UserError
from lexmill.base.languages import find, pair, shown, standard
from lexmill.base.shown import value_text
from lexmill.commands.init.reading import Kind
from lexmill.corpora.preparing.readers.xml_pairs import declared_languages

_ENDINGS = (".gz", ".zst", ".txt", ".text")
# What a side is for; each is also some language's code.
_ROLES = {"bpe", "hyp", "ref", "sl", "src", "tgt", "tl", "tok", "trg", "txt", "val"}


def choose(kind: Kind, reader: Mapping[str, Any], given: str | None, files: Iterable[Path]) -> list[str]:
    """Return the language of texts, or the source and target language of pairs, as BCP 47 tags.

    Args:
        kind: text, labelled, parallel or questions.
        reader: the corpus's reader, which names the two files or columns of pairs.
        given: the option's text, or None.
        files: of the corpus; those of XLIFF say their languages.

    Raises:
        UserError: the option is wrong, or it is missing and neither two names nor the files name the languages.
    """
    option = "--languages" if kind == "parallel" else "--language"
    if given is not None:
        try:
            return list(pair(given)) if kind == "parallel" else [standard(given)]
        except UserError as error:
            raise UserError(f"{option}: {error.message}") from None
    if kind != "parallel":
        return ["en"]
    if reader["format"] == "xliff":
        return _declared(files)
    if "source" not in reader:  # units of several languages in one file
        raise UserError(f"{option}: needed for {reader['format']} files, as {option} en-de")
    names = _names(reader)
    found = [tag for name in names if (tag := in_name(name))]
    if len(set(found)) < 2:
        both = " and ".join(map(value_text, names))
        raise UserError(f"the names {both} do not tell the languages; give them, as {option} en-de")
    return found


def _declared(files: Iterable[Path]) -> list[str]:
    """Return the source and target language that all XLIFF files say."""
    found = set[tuple[str, str]]().union(*map(declared_languages, files))
    if len(found) != 1 or not all(next(iter(found))):
        listed = ", ".join(sorted(" to ".join(language or "?" for language in pair) for pair in found)) or "none"
        raise UserError(f"--languages: the files say {listed}; say which to take, as --languages en-de")
    return [standard(language) for language in found.pop()]


def in_name(name: str) -> str | None:
    """Return the language that the name of a file or a column ends in, or None: `a.en-de.de.gz`, `train_zh_CN.txt`."""
    bare = name.rpartition("/")[2]
    while bare.lower().endswith(_ENDINGS):
        bare = bare.rpartition(".")[0]
    starts = [0, *(found.end() for found in re.finditer(r"[-._* ]", bare))]
    return next((tag for start in starts if (tag := find(bare[start:])) and bare[start:].lower() not in _ROLES), None)


def origin(kind: Kind, reader: Mapping[str, Any], given: str | None, tags: list[str]) -> str:
    """Return for people which languages `choose` took, from where, and what changes them."""
    if kind != "parallel":
        where = "from --language" if given is not None else "unless --language says another"
        return f"language: {shown(tags[0])}, {where}"
    things = {"parallel_text": "files' names", "xliff": "files"}.get(reader["format"], "columns' names")
    where = "from --languages" if given is not None else f"from the {things}; --languages changes them"
    return f"languages: {' to '.join(map(shown, tags))}, {where}"


def _names(reader: Mapping[str, Any]) -> list[str]:
    sides = [reader[role] for role in ("source", "target")]
    return [side if isinstance(side, str) else side[0] for side in sides]
