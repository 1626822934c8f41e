"""JSON trees of messages, one file a language and component, joined on (component, key path).

Components in only one of the two languages, keys on only one side and values other than text are skipped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lexmill.base.errors import UserError
from lexmill.corpora.preparing.errors import Errors
from lexmill.corpora.preparing.record import Record
from lexmill.corpora.preparing.source_files import SourceFiles, Unit, listed, uncompressed
from lexmill.corpora.preparing.text_files import Advance, half_character, whole_text
from lexmill.params.readers import TranslationTreeReader

KeyPath = tuple[str, ...]


def units(reader: TranslationTreeReader, files: SourceFiles, errors: Errors) -> list[Unit]:
    """Return the components with both languages; raise `UserError` where a pattern does not fit."""
    sources = _by_component("source", reader.source, files)
    targets = _by_component("target", reader.target, files)
    if not sources.keys() & targets.keys():
        counts = f"{len(sources)} components with a source file, {len(targets)} with a target file"
        errors.add(UserError(f"{counts}, none with both; check reader.source and reader.target", files.folder))
    return [(component, (path, targets[component])) for component, path in sources.items() if component in targets]


def read(component: str, files: Sequence[Path], errors: Errors, advance: Advance) -> Iterator[Record]:
    """Yield the message pairs of one component, in the order of its source tree; its name is their group."""
    trees = []
    for file in files:
        try:
            trees.append(_messages(file, advance))
        except UserError as error:
            errors.add(error)
    if len(trees) < 2:
        return
    source, target = trees
    for key, message in source.items():
        if key in target:
            yield Record(f"{component}:{'.'.join(key)}", component, message, target[key])


def _by_component(side: str, pattern: str, files: SourceFiles) -> dict[str, str]:
    if pattern.count("{group}") != 1:
        raise UserError(f"reader.{side}: '{pattern}' must hold {{group}} once, in place of the component")
    before, after = pattern.split("{group}")
    expression = re.compile(f"(?:.*/)?{re.escape(before)}([^/]+){re.escape(after)}")
    found: dict[str, str] = {}
    for path in files.paths:
        match = expression.fullmatch(path) or expression.fullmatch(uncompressed(path))
        if match is None:
            continue
        component = match.group(1)
        if component in found:
            raise UserError(f"reader.{side}: two files for '{component}': {found[component]} and {path}", files.folder)
        found[component] = path
    if not found:
        known = listed(files.paths)
        raise UserError(f"reader.{side}: no file matches '{pattern}'; there are: {known}", files.folder)
    return found


def _messages(file: Path, advance: Advance) -> dict[KeyPath, str]:
    text = whole_text(file, "utf-8", advance, instead="cut it into several components")
    try:
        tree = json.loads(text)
        if not isinstance(tree, dict):
            raise UserError("expected a JSON object of messages", file, 1)
        messages = dict(_leaves(tree, ()))
    except json.JSONDecodeError as error:
        raise UserError(f"not valid JSON: {error.msg} (column {error.colno})", file, error.lineno) from None
    except (RecursionError, ValueError):
        raise UserError("not valid JSON: nested too deep, or a number too long", file) from None
    for key, message in messages.items():
        half = half_character("".join((*key, message)))
        if half is not None:
            raise UserError(f"the message '{'.'.join(key)}' holds half a character ({half})", file)
    return messages


def _leaves(tree: dict[str, Any], above: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    for key, value in tree.items():
        path = (*above, key)
        if isinstance(value, dict):
            yield from _leaves(value, path)
        elif isinstance(value, str):
            yield path, value
