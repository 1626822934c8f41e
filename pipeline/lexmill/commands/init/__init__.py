"""`lexmill init lm | classify | translate`: write the configuration for a user's own files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Write the configuration for your own files; then `lexmill run`.", no_args_is_help=True)

Files = Annotated[list[Path], typer.Argument(metavar="FILE...", help=".txt .jsonl .csv .tsv, also .gz .zst; .parquet")]
Force = Annotated[bool, typer.Option("--force", help="Replace an earlier `lexmill init`; a backup is kept.")]
CorpusName = Annotated[str | None, typer.Option("--name", help="The corpus's name; default from the file's.")]
GroupColumn = Annotated[
    str | None, typer.Option("--group", help="Column whose value keeps records in one split (author, thread, ...).")
]
Encoding = Annotated[str | None, typer.Option("--encoding", help="The files' encoding, as latin-1; default utf-8.")]
Language = Annotated[str | None, typer.Option("--language", help="The text's language, as de; default en.")]
Quoting = Annotated[bool | None, typer.Option("--quoting/--no-quoting", help="Whether a .csv or .tsv uses quotes.")]


@app.command("lm")
def init_lm(
    files: Files,
    *,
    text: Annotated[str | None, typer.Option("--text", help="The text's column (tables only).")] = None,
    group: GroupColumn = None,
    language: Language = None,
    name: CorpusName = None,
    force: Force = False,
    encoding: Encoding = None,
    quoting: Quoting = None,
) -> None:
    """Set up a language model of your text."""
    from lexmill.commands.init.initialize import initialize

    reading = _reading(encoding, quoting)
    initialize("text", files, {"text": text}, group=group, name=name, force=force, languages=language, reading=reading)


@app.command("classify")
def init_classify(
    files: Files,
    *,
    text: Annotated[str, typer.Option("--text", help="The text's column.")] = "text",
    label: Annotated[str, typer.Option("--label", help="The label's column.")] = "label",
    group: GroupColumn = None,
    language: Language = None,
    name: CorpusName = None,
    force: Force = False,
    encoding: Encoding = None,
    quoting: Quoting = None,
) -> None:
    """Set up a model that labels texts like yours."""
    from lexmill.commands.init.initialize import initialize

    initialize(
        "labelled",
        files,
        {"text": text, "label": label},
        group=group,
        name=name,
        force=force,
        languages=language,
        reading=_reading(encoding, quoting),
    )


@app.command("translate")
def init_translate(
    files: Files,
    *,
    source: Annotated[str | None, typer.Option("--source", help="The source sentence's column (tables).")] = None,
    target: Annotated[str | None, typer.Option("--target", help="The target sentence's column (tables).")] = None,
    languages: Annotated[
        str | None,
        typer.Option("--languages", help="Source and target language, as en-de; default from the names: train.en ..."),
    ] = None,
    group: GroupColumn = None,
    name: CorpusName = None,
    force: Force = False,
    encoding: Encoding = None,
    quoting: Quoting = None,
) -> None:
    """Set up a model that translates sentences: from one table, or two text files of equal length (source first)."""
    from lexmill.commands.init.initialize import initialize

    initialize(
        "parallel",
        files,
        {"source": source, "target": target},
        group=group,
        name=name,
        force=force,
        languages=languages,
        reading=_reading(encoding, quoting),
    )


def _reading(encoding: str | None, quoting: bool | None) -> dict[str, str | bool]:
    return {key: value for key, value in (("encoding", encoding), ("quoting", quoting)) if value is not None}
