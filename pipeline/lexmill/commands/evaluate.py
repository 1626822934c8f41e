"""`lexmill evaluate`: score a registered model on any test set of the user's."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from lexmill import kinds, params
from lexmill.base import storage
from lexmill.base.errors import UserError
from lexmill.base.progress import say
from lexmill.base.quiet import quieten
from lexmill.base.shown import print_table
from lexmill.commands.check import unusable
from lexmill.commands.init.entry import corpus_entry, from_workspace, located, note_encodings, typed
from lexmill.commands.init.reading import Kind, Reading
from lexmill.compute.execution import load_execution
from lexmill.evaluation.rows import write_rows
from lexmill.params.corpora import Corpus
from lexmill.params.readers import ROLES
from lexmill.registry.use import open_registered
from lexmill.report import results


def evaluate(
    name: str,
    files: Sequence[Path],
    reading: Reading,
    *,
    version: str | None = None,
    languages: str | None = None,
    rows: Path | None = None,
    as_json: bool = False,
    root: Path = Path(),
) -> None:
    """Score a model, print its metrics with intervals.

    Args:
        name, version: the registered model; None: its champion.
        files: the test set; of plain text pairs two files, source first.
        reading: how the files are read, where that differs from the model's own corpus.
        languages: of pairs; None: those of the model.
        rows: where one JSON line an item is written; None: nowhere.
        as_json: print JSON instead of a table.
        root: the workspace.

    Raises:
        UserError: no such model or version, errors in the files, or the rows cannot be written.
        RetryableError: the tracking server does not answer.
    """
    if rows is not None and (why := unusable(rows.parent)):
        raise UserError(f"{rows} cannot be made: {why}")
    quieten(offline=True)
    choices, settings = params.load(root / "params.yaml"), load_execution(root)
    found, description, model = open_registered(name, version, settings, root)
    corpus = _corpus(description, files, reading, languages, root)
    # torch is imported by now: the rest needs it.
    from lexmill.corpora.preparing.small import linked
    from lexmill.corpora.preparing.test_set import prepare_test_set
    from lexmill.evaluation.device import evaluation_device
    from lexmill.registry.trial import subject_of

    kind = kinds.find(description["kind"])
    with tempfile.TemporaryDirectory(prefix="lexmill-evaluate-") as folder, linked(located(corpus, root)) as source:
        model.module.to(evaluation_device(settings))
        test = prepare_test_set(corpus, source, Path(folder))
        subject = subject_of(model, test, choices.evaluation, choices.data_seed)
        scoring = kind.module("evaluate")
        scored = scoring.rows(subject)
    metrics = scoring.metrics(subject, scored)
    if rows is not None:
        write_rows(rows, scored)
        say(f"{rows}: one JSON line for each of {len(scored):,} items")
    shown = ", ".join(map(str, files))
    if as_json:
        made = {"model": name, "version": found.version, "files": [str(file) for file in files], "metrics": metrics}
        sys.stdout.write(storage.canonical_json(made))
        return
    table = results.of_metrics(kind, name, shown, metrics)
    print_table(results.table(table, f"{name}, version {found.version}, on {len(scored):,} items"))
    for key in sorted(metrics):
        if key.endswith("_signature"):
            say(f"{key.removesuffix('_signature')}: {metrics[key]}")


def _corpus(
    description: Mapping[str, Any], files: Sequence[Path], reading: Reading, languages: str | None, root: Path
) -> Corpus:
    """Return the corpus of the files, read as the model's own is where both have one format."""
    own = description["params"]["corpus"]
    if own["kind"] == "conversation":
        return _conversations(own, files, reading, root)
    kind = cast(Kind, own["kind"])
    if wrong := [role for role, column in reading.columns.items() if column and role not in ROLES[kind]]:
        raise UserError(f"--{wrong[0]}: the records of '{description['name']}' have {' and '.join(ROLES[kind])}")
    reading = replace(reading, columns={role: reading.columns.get(role) for role in ROLES[kind]})
    tags = languages or ",".join(own["languages"])
    entry = corpus_entry(kind, [from_workspace(file, root) for file in files], reading, tags, root)
    if languages is None:
        entry["languages"] = own["languages"]
    reader = entry["reader"]
    if reader["format"] == own["reader"]["format"]:
        said = {role: column for role, column in reading.columns.items() if column}
        said |= {"group": reading.group} if reading.group else {}
        said |= {key: reader[key] for key in ("source", "target") if reader["format"] == "parallel_text"}
        said |= {key: reader[key] for key in ("file_format",) if key in reader}
        # The files' own encodings are found; those of the corpus name its files.
        alike = {key: value for key, value in own["reader"].items() if key not in ("encoding", "encodings")}
        entry["reader"] = {**alike, **said, **reading.choices}
    elif kind == "tagged":
        entry["reader"]["scheme"] = own["reader"]["scheme"]
    entry["unit"], entry["normalization"] = own["unit"], own["normalization"]
    for sentence in note_encodings(entry, root, own["reader"].get("encoding", "utf-8")):
        say(sentence)
    return typed(entry)


def _conversations(own: Mapping[str, Any], files: Sequence[Path], reading: Reading, root: Path) -> Corpus:
    """Return the corpus of files of conversations, which are read as the model's own are."""
    given = [role for role, column in reading.columns.items() if column]
    given += [*reading.choices, *(["group"] if reading.group else []), *(["format"] if reading.format else [])]
    if given:
        raise UserError(f"--{given[0]}: conversations are read as those of the model's corpus; leave it out")
    reader = {**own["reader"], "encodings": {}}
    paths = [from_workspace(file, root) for file in files]
    plain = {key: own[key] for key in ("kind", "unit", "languages", "normalization")}
    return typed({**plain, "reader": reader, "source": {"kind": "file", "paths": paths, "sha256": []}})
