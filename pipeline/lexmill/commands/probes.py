"""`lexmill minimal-pairs` and `lexmill last-words`: tests of a registered model that gives sentences probabilities."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lexmill import kinds, params
from lexmill.base import storage
from lexmill.base.errors import UserError
from lexmill.base.progress import say
from lexmill.base.quiet import quieten
from lexmill.base.shown import print_table
from lexmill.commands.check import unusable
from lexmill.compute.execution import load_execution
from lexmill.evaluation import probes
from lexmill.evaluation.bootstrap import Resampling
from lexmill.evaluation.rows import Row, write_rows
from lexmill.registry.use import open_registered


def minimal_pairs(
    name: str,
    file: Path,
    columns: probes.Columns,
    *,
    version: str | None = None,
    masked: bool = False,
    rows: Path | None = None,
    as_json: bool = False,
    root: Path = Path(),
) -> None:
    """Print how often a model finds the acceptable sentence likelier, with intervals, by phenomenon.

    Args:
        name, version: the registered model; None: its champion.
        file, columns: the pairs.
        masked: mask each token alone, as an encoder does; of a language model that has learned masked tokens.
        rows: where one JSON line a pair is written; None: nowhere.
        as_json: print JSON instead of a table.
        root: the workspace.

    Raises:
        UserError: no such model or version, one that gives no probabilities, or errors in the file.
        RetryableError: the tracking server does not answer.
    """
    pairs = probes.read_pairs(file, columns)

    def score(scored: Any, model: Any) -> list[Row]:
        return probes.pair_rows(scored, model, pairs)

    found, how = _rows(name, version, rows, root, score, masked=masked)
    metrics = probes.pair_metrics(found, how)
    if as_json:
        _print_json(name, file, metrics)
        return
    lines = [[part, f"{one['pairs']:,}", _share(one)] for part, one in metrics.items()]
    _print(f"{name} on {file}", ["phenomenon", "pairs", "accuracy"], lines)


def last_words(
    name: str,
    file: Path,
    column: str,
    *,
    version: str | None = None,
    rows: Path | None = None,
    as_json: bool = False,
    root: Path = Path(),
) -> None:
    """Print how often a model predicts the last word of a text; see `minimal_pairs`."""
    texts = probes.read_texts(file, column)
    found, how = _rows(name, version, rows, root, lambda scored, model: probes.word_rows(scored, model, texts))
    metrics = probes.word_metrics(found, how)
    if as_json:
        _print_json(name, file, metrics)
        return
    line = [f"{metrics['words']:,}", _share(metrics), f"{metrics['nats_per_word']:.3f}"]
    _print(f"{name} on {file}", ["words", "accuracy", "nats a word"], [line])


def _rows(
    name: str,
    version: str | None,
    rows: Path | None,
    root: Path,
    score: Callable[[Any, Any], list[Row]],
    *,
    masked: bool = False,
) -> tuple[list[Row], Resampling]:
    """Return a model's rows, written to a file too if asked for, and how intervals are drawn."""
    if rows is not None and (why := unusable(rows.parent)):
        raise UserError(f"{rows} cannot be made: {why}")
    quieten(offline=True)
    choices, settings = params.load(root / "params.yaml"), load_execution(root)
    _, description, model = open_registered(name, version, settings, root)
    kind = kinds.find(description["kind"])
    if not kind.scores_sentences:
        able = " or ".join(one.one for one in kinds.every() if one.scores_sentences)
        raise UserError(f"'{name}' is {kind.one}, which gives sentences no probabilities; take {able}")
    if masked and not kind.predicts_masked_tokens:
        raise UserError(f"'{name}' is {kind.one}, which predicts no masked tokens; leave out --masked")
    from lexmill.evaluation.device import evaluation_device

    model.module.to(evaluation_device(settings))
    if masked:
        from lexmill.decoding import masked_tokens

        found = score(masked_tokens, kind.module("masked").reader(model))
    else:
        found = score(kind.module("sentences"), model)
    if rows is not None:
        write_rows(rows, found)
        say(f"{rows}: one JSON line for each of {len(found):,} items")
    return found, Resampling.of(choices.evaluation, choices.data_seed)


def _share(one: dict[str, Any]) -> str:
    shown = f"{100 * one['accuracy']:.1f} %"
    if "accuracy_low" not in one:
        return shown
    return f"{shown} ({100 * one['accuracy_low']:.1f} to {100 * one['accuracy_high']:.1f})"


def _print_json(name: str, file: Path, metrics: dict[str, Any]) -> None:
    sys.stdout.write(storage.canonical_json({"model": name, "file": str(file), "metrics": metrics}))


def _print(title: str, columns: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    from rich.table import Table

    table = Table(title=title)
    for column in columns:
        table.add_column(column)
    for line in lines:
        table.add_row(*line)
    print_table(table)
