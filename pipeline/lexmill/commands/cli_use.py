"""Commands that use a model: each kind's verb, `lexmill serve`, `lexmill export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from lexmill import kinds
from lexmill.commands import init, use

app = typer.Typer()

for _kind in kinds.every():
    _kind.module("command").add(app, use)


@app.command()
def serve(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A registered model.")],
    version: Annotated[str | None, typer.Option("--version", help="Default: the champion.")] = None,
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0: a free one.")] = 5001,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option("--allowed-host", help="A name that requests may use for this server, several times; '*': any."),
    ] = None,
) -> None:
    """Answer HTTP requests with a registered model, until Ctrl-C."""
    from lexmill.commands.deploy import serve as command

    command(name, version, host, port, tuple(allowed_host or ()))


@app.command()
def evaluate(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A registered model.")],
    files: init.Files,
    *,
    version: Annotated[str | None, typer.Option("--version", help="Default: the champion.")] = None,
    text: Annotated[str | None, typer.Option("--text", help="The text's column (tables).")] = None,
    label: Annotated[str | None, typer.Option("--label", help="The label's column (tables).")] = None,
    source: Annotated[str | None, typer.Option("--source", help="The source sentence's column (tables).")] = None,
    target: Annotated[str | None, typer.Option("--target", help="The target sentence's column (tables).")] = None,
    group: init.Group = None,
    languages: Annotated[
        str | None, typer.Option("--languages", help="Of pairs, as en-de; default those of the model.")
    ] = None,
    file_format: init.Format = None,
    encoding: init.Encoding = None,
    quoting: init.Quoting = None,
    header: init.Header = None,
    delimiter: init.Delimiter = None,
    separator: init.Separator = None,
    label_last: init.LabelLast = False,
    rows: Annotated[Path | None, typer.Option("--rows", help="Write one JSON line for each item there.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Score a registered model on any test set; its files are read like its corpus unless options differ."""
    from lexmill.commands.evaluate import evaluate as command

    columns = {"text": text, "label": label, "source": source, "target": target}
    reading = init.reading_of(
        columns,
        group=group,
        file_format=file_format,
        encoding=encoding,
        quoting=quoting,
        header=header,
        delimiter=delimiter,
        separator=separator,
        label_first=False if label_last else None,
    )
    command(name, files, reading, version=version, languages=languages, rows=rows, as_json=as_json)


Rows = Annotated[Path | None, typer.Option("--rows", help="Write one JSON line for each item there.")]
Version = Annotated[str | None, typer.Option("--version", help="Default: the champion.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


@app.command()
def minimal_pairs(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A registered model.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JSON lines, or a .tsv or .csv with a header.")],
    *,
    good: Annotated[str, typer.Option("--good", help="The acceptable sentence's column.")] = "sentence_good",
    bad: Annotated[str, typer.Option("--bad", help="The unacceptable sentence's column.")] = "sentence_bad",
    phenomenon: Annotated[str, typer.Option("--phenomenon", help="The column that groups pairs.")] = "UID",
    masked: Annotated[bool, typer.Option("--masked", help="Mask each token, of a model that reads both ways.")] = False,
    version: Version = None,
    rows: Rows = None,
    as_json: AsJson = False,
) -> None:
    """How often a model finds the acceptable one of two sentences likelier, by phenomenon (as in BLiMP)."""
    from lexmill.commands.probes import minimal_pairs as command
    from lexmill.evaluation.probes import Columns

    columns = Columns(good, bad, phenomenon)
    command(name, file, columns, version=version, masked=masked, rows=rows, as_json=as_json)


@app.command()
def last_words(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A registered model.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A text a line, or .jsonl, .tsv, .csv.")],
    *,
    text: Annotated[str, typer.Option("--text", help="The text's column (tables).")] = "text",
    version: Version = None,
    rows: Rows = None,
    as_json: AsJson = False,
) -> None:
    """How often a model completes the last word of a text (as in LAMBADA)."""
    from lexmill.commands.probes import last_words as command

    command(name, file, text, version=version, rows=rows, as_json=as_json)


@app.command()
def export(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A model of this project, or a registered one.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new folder.")],
    to: Annotated[
        Literal["transformers", "onnx", "ctranslate2"], typer.Option(help="The program that reads it.")
    ] = "transformers",
    int8: Annotated[
        bool, typer.Option("--int8", help="For ONNX and CTranslate2: 8-bit matrices, faster on a CPU.")
    ] = False,
) -> None:
    """Write a model for other programs: in Hugging Face format, for ONNX Runtime or for CTranslate2."""
    from lexmill.commands.deploy import export_model

    export_model(name, folder, to=to, int8=int8)
