"""`lexmill init lm | classify | translate`: write the configuration for a user's own files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

app = typer.Typer(help="Write the configuration for your own files; then `lexmill run`.", no_args_is_help=True)

Files = Annotated[list[Path], typer.Argument(metavar="FILE...", help=".txt .jsonl .csv .tsv, also .gz .zst; .parquet")]
Force = Annotated[bool, typer.Option("--force", help="Replace an earlier `lexmill init`; a backup is kept.")]
CorpusName = Annotated[str | None, typer.Option("--name", help="The corpus's name; default from the file's.")]
GroupColumn = Annotated[
    str | None, typer.Option("--group", help="Column whose value keeps records in one split (author, thread, ...).")
]
Encoding = Annotated[str | None, typer.Option("--encoding", help="The files' encoding, as latin-1; default utf-8.")]
Quoting = Annotated[bool | None, typer.Option("--quoting/--no-quoting", help="Whether a .csv or .tsv uses quotes.")]


@app.command("lm")
def init_lm(
    files: Files,
    *,
    text: Annotated[str | None, typer.Option("--text", help="The text's column (tables only).")] = None,
    group: GroupColumn = None,
    name: CorpusName = None,
    force: Force = False,
    encoding: Encoding = None,
    quoting: Quoting = None,
) -> None:
    """Set up a language model of your text."""
    _initialize("text", files, {"text": text}, group, name, force, encoding, quoting)


@app.command("classify")
def init_classify(
    files: Files,
    *,
    text: Annotated[str, typer.Option("--text", help="The text's column.")] = "text",
    label: Annotated[str, typer.Option("--label", help="The label's column.")] = "label",
    group: GroupColumn = None,
    name: CorpusName = None,
    force: Force = False,
    encoding: Encoding = None,
    quoting: Quoting = None,
) -> None:
    """Set up a model that labels texts like yours."""
    _initialize("labelled", files, {"text": text, "label": label}, group, name, force, encoding, quoting)


@app.command("translate")
def init_translate(
    files: Files,
    *,
    source: Annotated[str | None, typer.Option("--source", help="The source sentence's column (tables).")] = None,
    target: Annotated[str | None, typer.Option("--target", help="The target sentence's column (tables).")] = None,
    languages: Annotated[str | None, typer.Option("--languages", help="Source and target language, as en-de.")] = None,
    group: GroupColumn = None,
    name: CorpusName = None,
    force: Force = False,
    encoding: Encoding = None,
    quoting: Quoting = None,
) -> None:
    """Set up a model that translates sentences: from one table, or two text files of equal length (source first)."""
    columns = {"source": source, "target": target}
    _initialize("parallel", files, columns, group, name, force, encoding, quoting, languages)


def _initialize(
    kind: Literal["text", "labelled", "parallel"],
    files: list[Path],
    columns: dict[str, str | None],
    group: str | None,
    name: str | None,
    force: bool,
    encoding: str | None,
    quoting: bool | None,
    languages: str | None = None,
) -> None:
    from lexmill.commands.init.initialize import initialize

    options = {"encoding": encoding, "quoting": quoting}
    reading = {key: value for key, value in options.items() if value is not None}
    initialize(kind, files, columns, group=group, name=name, force=force, languages=languages, reading=reading)
