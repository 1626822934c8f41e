"""From the files and options of the command line to a corpus's reader and the splits of the data's owners."""

from __future__ import annotations

import dataclasses
import glob
import os
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, Literal, get_args, get_type_hints

from lexmill.base.errors import UserError
from lexmill.base.shown import value_text
from lexmill.commands.init.tagged import columns_of
from lexmill.corpora.fetching.files import locate
from lexmill.corpora.preparing.splits import names_file
from lexmill.params import corpora, readers

Kind = Literal["text", "labelled", "tagged", "parallel", "questions"]

RECORDS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".parquet": "parquet"}
_TABLES = {".csv": "csv", ".tsv": "tsv", **RECORDS}
_PAIRS = {".tmx": "tmx", ".xlf": "xliff", ".xliff": "xliff", ".po": "gettext", ".mo": "gettext"}
_COLUMNS = {".conll": "conll", ".conllu": "conllu", ".iob": "conll", ".iob2": "conll", ".bio": "conll"}
_PLAIN = (".txt", ".text", "")
_MOST_NAME = 60  # the models' names are made from it
_ESCAPES = {"\\t": "\t", "tab": "\t", "space": " "}
_READERS = {name: reader for reader in get_args(readers.Reader) for name in get_args(get_type_hints(reader)["format"])}
_FORMATS_OF = {
    "text": ("text", *_TABLES.values()),
    "labelled": ("labelled_lines", "text", *_TABLES.values()),
    "tagged": ("conll", "conllu", "tagged_records"),
    "parallel": (*_TABLES.values(), *_PAIRS.values()),
}


@dataclass(frozen=True)
class Reading:
    """How the command line says that files are read.

    Attributes:
        columns: the column of each role, for tables; None: it is named like its role.
        group: the column whose value keeps records in one split.
        split: the column that says which split a record is in.
        format: of all files; None: as their endings say.
        choices: further keys of the reader: encoding, quoting, header, delimiter, separator, label_first, label_form.
        valid, test: files of the owners' splits; a second set of `test` is a further test set.
    """

    columns: Mapping[str, str | None]
    group: str | None = None
    split: str | None = None
    format: str | None = None
    choices: Mapping[str, Any] = field(default_factory=dict)
    valid: Sequence[str] = ()
    test: Sequence[str] = ()

    @property
    def labels(self) -> str:
        """Return what a label is: a name, a number or a set."""
        return str(self.choices.get("label_form", {}).get("kind", "name"))


def suffix(path: str) -> str:
    """Return the ending of a file's name, without that of its compression."""
    return PurePath(path.removesuffix(".gz").removesuffix(".zst")).suffix.lower()


def corpus_name(text: str) -> str:
    """Return the text as a name of unaccented letters, digits and `_` that begins with a letter."""
    bare = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    name = re.sub(r"[^A-Za-z0-9]+", "_", bare).strip("_").lower()
    name = name if name[:1].isalpha() else f"corpus_{name}"
    return name[:_MOST_NAME].rstrip("_")


def format_of(kind: Kind, paths: Sequence[str], reading: Reading, root: Path) -> str:
    """Return the format of all files; `folders`: one of texts for each label.

    Raises:
        UserError: there are several, or it is unknown, or unfit for this kind.
    """
    folders = reading.format is None and any((root / path).is_dir() for path in paths)
    if kind == "labelled" and (folders or reading.format == "text"):
        return "folders"
    if reading.format is not None:
        if reading.format not in _FORMATS_OF[kind]:
            known = ", ".join(dict.fromkeys(_FORMATS_OF[kind]))
            raise UserError(f"--format {value_text(reading.format)}: it must be one of: {known}")
        return reading.format
    found = sorted({suffix(path) for path in paths})
    if kind == "parallel" and not set(found) & (_TABLES.keys() | _PAIRS.keys()):
        return "parallel_text"  # train.en and train.de are plain text
    if len(found) > 1:
        raise UserError(f"the files have several formats ({', '.join(found)}); give files of one format, or --format")
    if kind == "tagged":
        return _tagged_format(paths[0], found[0])
    if found[0] in _TABLES:
        return _TABLES[found[0]]
    if found[0] in _PAIRS and kind == "parallel":
        return _PAIRS[found[0]]
    if found[0] not in _PLAIN:
        known = ", ".join([*_TABLES, ".txt"])
        raise UserError(
            f"{paths[0]}: the format '{found[0]}' is unknown; known: {known}, each also with .gz or .zst; --format says"
            " which it is"
        )
    if kind == "labelled":
        raise UserError(
            f"{paths[0]}: plain text has no labels; give a {', '.join(_TABLES)} file, or a folder with a folder of"
            " texts for each label, or --format labelled_lines if each line begins with its label"
        )
    return "text"


def records_format(path: str) -> str:
    """Return the format of a file of records, by its name; jsonl where that says nothing."""
    return RECORDS.get(suffix(path), "jsonl")


def _no_split(chosen: str, reading: Reading) -> None:
    """Raise `UserError` for a column of splits in files that have none."""
    if reading.split and chosen != "tagged_records":
        raise UserError("--split-column: such files have no columns for it; leave it out, or give --valid and --test")


def _tagged_format(path: str, ending: str) -> str:
    if ending in RECORDS:
        return "tagged_records"
    if ending not in _COLUMNS:
        known = ", ".join([*_COLUMNS, *RECORDS])
        raise UserError(
            f"{path}: the format '{ending}' of tagged sentences is unknown; known: {known}; --format conll says that it"
            " has a word and its tag in each line"
        )
    return _COLUMNS[ending]


def reader_of(chosen: str, reading: Reading) -> dict[str, Any]:
    """Return the reader of a format, as plain data; that of `parallel_text` has no files yet.

    Raises:
        UserError: an option does not fit the format.
    """
    options = dict(reading.choices)
    if chosen in _FORMATS_OF["tagged"]:
        _no_split(chosen, reading)
        reader = {"format": chosen, **columns_of(chosen, reading.columns, reading.group)}
    elif chosen in _TABLES.values():
        columns = _columns(reading, header=options.get("header", True))
        if "labels" in options:
            del columns["label"]
        group = {"group": reading.group} if reading.group else {}
        reader = {"format": chosen, **columns, **group}
    else:
        given = {f"--{role}": column for role, column in reading.columns.items()}
        given |= {"--group": reading.group, "--split-column": reading.split}
        if wrong := [option for option, column in given.items() if column]:
            raise UserError(f"{wrong[0]}: such files have no columns; leave it out, or give a table")
        reader = {"format": "text" if chosen == "folders" else chosen}
        reader |= {"folders": {"label_from": "folder"}, "text": {"document": "paragraph"}}.get(chosen, {})
    known = {one.name for one in dataclasses.fields(_READERS[reader["format"]])}
    for key in options:
        if key not in known:
            option = {"label_first": "--label-last"}.get(key, f"--{key}")
            raise UserError(f"{option}: it means nothing for the format '{reader['format']}'; leave it out")
    return reader | options


def _columns(reading: Reading, *, header: bool) -> dict[str, str]:
    columns = {role: column or role for role, column in reading.columns.items()}
    if len(set(columns.values())) < len(columns):
        both = " and ".join(f"--{role}" for role in columns)
        raise UserError(f"{both} name the column '{next(iter(columns.values()))}'; give two columns")
    if not header and (wrong := [role for role, column in columns.items() if not column.isdigit()]):
        example = " ".join(f"--{role} {i}" for i, role in enumerate(columns))
        raise UserError(f"--no-header: --{wrong[0]} must be the number of a column, from 0; for instance {example}")
    return columns


def unescaped(mark: str | None) -> str | None:
    """Return a delimiter or separator as typed on a command line: `\\t` or `tab` for a tab, `space` for a space."""
    return None if mark is None else _ESCAPES.get(mark, mark)


def split_files(
    pairs: bool, train: Sequence[str], reading: Reading, located: Mapping[str, Path], root: Path
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Return the names of the files of valid, test and further test sets, and those of each side of pairs.

    Args:
        pairs: whether each set is two plain files, source and target.
        train: the paths of train.
        reading: has those of valid and test.
        located: all files by the name that fetch gives them.
        root: the workspace.

    Raises:
        UserError: files do not pair, or one is in two sets.
    """
    names = {path: name for name, path in located.items()}

    def named(paths: Sequence[str]) -> list[str]:
        return [names[path] for path in locate(corpora.FileSource("file", tuple(paths)), root).values()]

    def globs(paths: Sequence[str]) -> list[str]:
        return [one for path in paths for one in _as_globs(path, named([path]), located, root)]

    step = 2 if pairs else 1
    for option, paths in (("FILE", train), ("--valid", reading.valid), ("--test", reading.test)):
        if pairs and (len(paths) % 2 or (option == "FILE" and len(paths) != step)):
            raise UserError(f"{option}: plain text pairs come as two files, source and target, not {len(paths)}")
    tests = [list(reading.test[i : i + step]) for i in range(0, len(reading.test), step)]
    sets = {"valid": list(reading.valid)} if reading.valid else {}
    for number, paths in enumerate(tests):
        sets[_set_name(paths[0], sets) if number else "test"] = paths
    found = {name: named(paths) for name, paths in sets.items()}
    once: set[str] = set(named(train))
    for of_set in found.values():
        if twice := sorted(once & set(of_set)):
            raise UserError(f"{located[twice[0]]} is given twice; a file is in one split")
        once |= set(of_set)
    written = {name: globs(paths) for name, paths in sets.items()}
    if not pairs:
        return written, {}
    everything = [*train, *reading.valid, *reading.test]
    sides = {"source": everything[::2], "target": everything[1::2]}
    return written, {side: [named([path])[0] for path in paths] for side, paths in sides.items()}


def _as_globs(path: str, matched: Sequence[str], located: Mapping[str, Path], root: Path) -> list[str]:
    """Return what names these files among all: the path itself if it is a glob that does, else their names.

    Args:
        path, matched: of the workspace, perhaps a glob, and the names of its files.
        located: all files by name.
    """
    whole = os.path.abspath(root / path)
    before = str(located[matched[0]])[: -len(matched[0])]
    if glob.has_magic(path) and whole.startswith(before):
        pattern = whole[len(before) :]
        pattern = pattern if "/" in pattern else f"./{pattern}"
        if {name for name in located if names_file(pattern, name)} == set(matched):
            return [pattern]
    return [name if "/" in name else f"./{name}" for name in matched]


def _set_name(path: str, taken: Mapping[str, object]) -> str:
    """Return a name for a further test set, from that of its first file."""
    plain = next((part for part in reversed(PurePath(path).parts) if not glob.has_magic(part)), path)
    bare = corpus_name(plain.partition(".")[0])
    bare = bare if bare not in ("train", "valid", "test") else f"test_{bare}"
    numbers = range(2, len(taken) + 3)
    return next(name for name in (bare, *(f"{bare}_{n}" for n in numbers)) if name not in taken)
