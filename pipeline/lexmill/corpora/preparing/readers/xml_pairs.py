"""Sentence pairs of translation memories (TMX) and of localisation files (XLIFF 1.2 and 2.0), read as streams.

A TMX unit gives its variants in the corpus's two languages, an XLIFF unit or segment its source and its target; units
without one of them are skipped. Inline codes are left out, marked text stays. The files' encodings are those that they
declare. Entity declarations are refused and nothing outside the file is loaded. Memory: one unit and a block of the
file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar
from xml.parsers import expat

from lexmill.base.budgets import MAX_LINE_BYTES, MAX_XML_DEPTH, MAX_XML_NAMES, MAX_XML_TAG_BYTES, MIB
from lexmill.base.errors import UserError
from lexmill.base.shown import key_text
from lexmill.corpora.preparing.errors import Errors
from lexmill.corpora.preparing.record import Record
from lexmill.corpora.preparing.source_files import LineNames
from lexmill.corpora.preparing.text_files import Advance, error_of_reading, open_bytes
from lexmill.params.readers import UnitsReader

_BLOCK = 1 << 18
_MOST_LISTED = 20
_MOST_LANGUAGES = 1_000  # of a file; a memory has 2 to 50

Pair = tuple[int, str, str]
"""The line at which a unit begins, its source and its target."""


def read(
    reader: UnitsReader, languages: Sequence[str], name: str, file: Path, *, errors: Errors, advance: Advance
) -> Iterator[Record]:
    """Yield the pairs of one file.

    Args:
        reader, name: its format, and the name of the file's records.
        languages: the source and the target language; `en` is also `en-US`, where no variant is `en` itself.
        file: the file.
        errors: collects the error that ends the reading.
        advance: called with the number of bytes read.
    """
    document = {"tmx": _Tmx, "xliff": _Xliff}[reader.format](languages, file)
    names = LineNames()
    try:
        with open_bytes(file, advance) as stream:
            data = b"first"
            while data:
                try:
                    data = stream.read(_BLOCK)
                except Exception as error:
                    raise error_of_reading(error, file, document.line) from None
                for line, source, target in document.parse(data):
                    yield Record(f"{name}:{names.next(line)}", None, source, target)
    except UserError as error:
        errors.add_last(error)


def declared_languages(file: Path) -> set[tuple[str, str]]:
    """Return the source and target language of each part of an XLIFF file that has pairs; "" where it says none.

    Raises:
        UserError: not well-formed, not XLIFF, an entity, or over a budget.
    """
    document = _Xliff(("", ""), file)
    with open_bytes(file) as stream:
        while data := stream.read(_BLOCK):
            document.parse(data)
    return document.declared


def matching(wanted: str, known: Iterable[str]) -> str | None:
    """Return the language that is the wanted one, or else the first variety of it: `en-US` for `en`."""
    plain = {language: language.replace("_", "-").lower() for language in known}
    wanted = wanted.replace("_", "-").lower()
    exact = (language for language, name in plain.items() if name == wanted)
    varieties = (language for language, name in plain.items() if name.startswith(f"{wanted}-"))
    return next(exact, None) or next(varieties, None)


class _Document(ABC):
    """A file on its way through expat: follows the elements and gathers the text of those that a format wants."""

    root: ClassVar[str]
    codes: ClassVar[frozenset[str]]
    """The inline elements whose content is no text."""

    def __init__(self, languages: Sequence[str], file: Path) -> None:
        self.languages, self.pairs, self.seen = languages, list[Pair](), Counter[str]()
        self.path: list[str] = []
        self._file, self._found, self._fed = file, 0, 0
        self._text: list[str] | None = None
        self.begins, self._size, self._code = 1, 0, 0
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.specified_attributes = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._parser.EntityDeclHandler = self._declared
        self._parser.SkippedEntityHandler = self._skipped

    @property
    def line(self) -> int:
        """The line that is being read."""
        return self._parser.CurrentLineNumber

    def parse(self, data: bytes) -> list[Pair]:
        """Return the pairs of units that end in a block; b"" ends the file.

        Raises:
            UserError: not well-formed, another root, an entity, over a budget, or without a pair in the languages.
        """
        self.pairs = []
        try:
            self._parser.Parse(data, not data)
        except expat.ExpatError as error:
            message = f"not valid XML: {expat.ErrorString(error.code)} (column {error.offset + 1})"
            raise UserError(message, self._file, error.lineno) from None
        except (LookupError, ValueError) as error:
            raise self._error(f"the encoding that it declares is not read ({error}); save it as UTF-8") from None
        self._fed += len(data)
        if self._fed - self._parser.CurrentByteIndex > MAX_XML_TAG_BYTES:
            raise self._error(f"a tag or comment is longer than {MAX_XML_TAG_BYTES // MIB} MiB")
        if len(self._parser.intern) > MAX_XML_NAMES:
            raise self._error(f"more than {MAX_XML_NAMES:,} names of elements and attributes; is this {self.root}?")
        self._found += len(self.pairs)
        if not data and self.seen and not self._found:
            listed = ", ".join(f"{key_text(name)} ({count:,})" for name, count in self.seen.most_common(_MOST_LISTED))
            both = " and ".join(self.languages)
            raise UserError(f"no unit is in {both} (the corpus's languages); the file has: {listed}", self._file)
        return self.pairs

    @abstractmethod
    def opened(self, name: str, attributes: Mapping[str, str]) -> bool:
        """Follow the start of an element; return whether its text is wanted."""

    @abstractmethod
    def closed(self, name: str, text: str | None) -> None:
        """Follow the end of an element; `text`: its text, if it was wanted."""

    def begin_unit(self) -> None:
        """Begin to count the text of a unit."""
        self.begins, self._size = self.line, 0

    def check_languages(self, known: Mapping[str, object]) -> None:
        """Raise `UserError` where there are more languages than a file can have."""
        if len(known) > _MOST_LANGUAGES:
            raise self._error(f"more than {_MOST_LANGUAGES:,} languages; is this {self.root}?")

    def _error(self, message: str) -> UserError:
        return UserError(message, self._file, self.line)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        name = _local(name)
        if not self.path and name != self.root:
            raise self._error(f"the root element is <{key_text(name)}>, not <{self.root}>; check reader.format")
        self.path.append(name)
        if len(self.path) > MAX_XML_DEPTH:
            raise self._error(f"elements are nested deeper than {MAX_XML_DEPTH}")
        if self._text is not None:
            self._code += self._code > 0 or name in self.codes
        elif self.opened(name, attributes):
            self._text, self._wanted = [], len(self.path)

    def _end(self, _name: str) -> None:
        name = self.path[-1]
        if self._text is None:
            self.closed(name, None)
        elif len(self.path) == self._wanted:
            text, self._text = "".join(self._text), None
            self.closed(name, text)
        elif self._code:
            self._code -= 1
        self.path.pop()

    def _characters(self, data: str) -> None:
        if self._text is not None and not self._code:
            self._text.append(data)
            self._size += len(data)
            if self._size > MAX_LINE_BYTES:
                raise self._error(f"the text of a unit is longer than {MAX_LINE_BYTES // MIB} Mi characters")

    def _declared(self, name: str, *_: object) -> None:
        raise self._error(f"it declares an entity ({key_text(name)}), which is not read; write the text in its place")

    def _skipped(self, name: str, _parameter: bool) -> None:
        raise self._error(f"the entity &{key_text(name)}; is not defined here; write the character in its place")


class _Tmx(_Document):
    root = "tmx"
    codes = frozenset({"bpt", "ept", "ph", "it", "ut"})

    def opened(self, name: str, attributes: Mapping[str, str]) -> bool:
        if name == "tu":
            self.begin_unit()
            self._variants = dict[str, str]()
        elif name == "tuv":
            self._language = attributes.get("xml:lang") or attributes.get("lang") or ""
        return name == "seg" and self.path[-3:] == ["tu", "tuv", "seg"]

    def closed(self, name: str, text: str | None) -> None:
        if text is not None:
            self._variants.setdefault(self._language, text)
            self.check_languages(self._variants)
        elif name == "tu":
            self.seen.update(self._variants.keys())
            self.check_languages(self.seen)
            source, target = (matching(language, self._variants) for language in self.languages)
            if source is not None and target is not None and source != target:
                self.pairs.append((self.begins, self._variants[source], self._variants[target]))


class _Xliff(_Document):
    root = "xliff"
    codes = frozenset({"ph", "x", "bx", "ex", "bpt", "ept", "it", "sc", "ec"})
    _units = ("trans-unit", "segment")

    def __init__(self, languages: Sequence[str], file: Path) -> None:
        super().__init__(languages, file)
        self._root, self._given = ("", ""), ("", "")
        self.declared = set[tuple[str, str]]()

    def opened(self, name: str, attributes: Mapping[str, str]) -> bool:
        if name == "xliff":
            self._root = self._given = (attributes.get("srcLang", ""), attributes.get("trgLang", ""))
        elif name == "file":
            source, target = attributes.get("source-language"), attributes.get("target-language")
            self._given = (source or self._root[0], target or self._root[1])
        elif name in self._units:
            self.begin_unit()
            self._sides = dict[str, str]()
        return name in ("source", "target") and len(self.path) > 1 and self.path[-2] in self._units

    def closed(self, name: str, text: str | None) -> None:
        if text is not None:
            self._sides[name] = text
        elif name in self._units and all(self._sides.get(side, "").strip() for side in ("source", "target")):
            self.declared.add(self._given)
            self.seen[" to ".join(language or "?" for language in self._given)] += 1
            self.check_languages(self.seen)
            sides = zip(self.languages, self._given, strict=True)
            if all(not given or matching(wanted, [given]) for wanted, given in sides):
                self.pairs.append((self.begins, self._sides["source"], self._sides["target"]))


def _local(name: str) -> str:
    """The name of an element without its prefix."""
    return name.rpartition(":")[2]
