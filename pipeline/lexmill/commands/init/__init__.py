"""`lexmill init lm | classify | rate ...`: write the configuration for a user's own files."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, Unpack, get_args, get_type_hints

import typer

if TYPE_CHECKING:
    from lexmill.commands.init.reading import Kind, Reading

app = typer.Typer(help="Write the configuration for your own files; then `lexmill run`.", no_args_is_help=True)

Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE...",
        help=".txt .jsonl .json .csv .tsv .conll .conllu .tmx .xliff .po, also .gz .zst; .parquet; or hub:OWNER/NAME",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace an earlier `lexmill init`; a backup is kept.")]
CorpusName = Annotated[str | None, typer.Option("--name", help="The corpus's name; default from the file's.")]
Group = Annotated[
    str | None, typer.Option("--group", help="Column whose value keeps records in one split (author, thread, ...).")
]
Valid = Annotated[
    list[Path] | None, typer.Option("--valid", help="The valid set, if the data has one; else it is cut from FILE.")
]
Test = Annotated[
    list[Path] | None,
    typer.Option("--test", help="The test set, if the data has one; given again: a further test set."),
]
Split = Annotated[
    str | None, typer.Option("--split-column", help="Column that says which split a record is in: train, valid, test.")
]
Language = Annotated[str | None, typer.Option("--language", help="The text's language, as de; default en.")]
Format = Annotated[str | None, typer.Option("--format", help="The files' format, whatever their names end in.")]
Encoding = Annotated[
    str | None,
    typer.Option("--encoding", help="The files' encoding, as latin-1; default utf-8, else what they seem to be."),
]
Quoting = Annotated[bool | None, typer.Option("--quoting/--no-quoting", help="Whether a .csv or .tsv uses quotes.")]
Header = Annotated[
    bool | None,
    typer.Option("--header/--no-header", help="Whether a .csv or .tsv names its columns; else they are 0, 1, ..."),
]
Delimiter = Annotated[str | None, typer.Option("--delimiter", help="What separates the columns of a table: ';', tab.")]
Separator = Annotated[
    str | None, typer.Option("--separator", help="What separates label and text (--format labelled_lines).")
]
Text = Annotated[str | None, typer.Option("--text", help="The text's column; default text.")]
Second = Annotated[str | None, typer.Option("--second", help="The column of a second text, where pairs are labelled.")]
LabelLast = Annotated[
    bool, typer.Option("--label-last", help="The label is at the end of the line (--format labelled_lines).")
]


class Given(TypedDict):
    """Options of every command."""

    valid: Valid
    test: Test
    split: Split
    name: CorpusName
    force: Force
    file_format: Format
    encoding: Encoding


class OfTables(Given):
    """Options of every command that reads tables."""

    quoting: Quoting
    header: Header
    delimiter: Delimiter


def reading_of(
    columns: dict[str, str | None],
    *,
    group: str | None,
    split: str | None = None,
    file_format: str | None,
    valid: list[Path] | None = None,
    test: list[Path] | None = None,
    **choices: str | bool | tuple[str, ...] | dict[str, str] | None,
) -> Reading:
    """Return what the options say; one that was not given is left out."""
    from lexmill.commands.init.reading import Reading, unescaped

    marks = {key: unescaped(mark) for key in ("delimiter", "separator") if isinstance(mark := choices.get(key), str)}
    given = {key: value for key, value in (choices | marks).items() if value is not None}
    sets = [[str(file) for file in files or ()] for files in (valid, test)]
    return Reading(columns, group, split, file_format, given, *sets)


def _spread(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of its `**given`, after its own; Typer cannot read them from a `TypedDict`."""
    signature = inspect.signature(command, eval_str=True)
    *own, given = signature.parameters.values()
    (options,) = get_args(given.annotation)
    more = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=False if get_args(annotation)[0] is bool else None,
            annotation=annotation,
        )
        for name, annotation in get_type_hints(options, include_extras=True).items()
    ]
    command.__dict__["__signature__"] = signature.replace(parameters=[*own, *more])
    return command


def _set_up(
    kind: Kind,
    files: list[Path],
    columns: dict[str, str | None],
    *,
    language: str | None,
    name: str | None,
    force: bool,
    **given: Any,
) -> None:
    from lexmill.commands.init.initialize import initialize

    initialize(kind, files, reading_of(columns, **given), name=name, force=force, languages=language)


@app.command("lm")
@_spread
def init_lm(
    files: Files,
    *,
    text: Annotated[str | None, typer.Option("--text", help="The text's column (tables only).")] = None,
    group: Group = None,
    language: Language = None,
    **given: Unpack[OfTables],
) -> None:
    """Set up a language model of your text."""
    _set_up("text", files, {"text": text}, group=group, language=language, **given)


@app.command("classify")
@_spread
def init_classify(
    files: Files,
    *,
    text: Text = None,
    label: Annotated[
        list[str] | None, typer.Option("--label", help="The label's column; default label. Several: joined by ' / '.")
    ] = None,
    second: Second = None,
    group: Group = None,
    language: Language = None,
    separator: Separator = None,
    label_last: LabelLast = False,
    **given: Unpack[OfTables],
) -> None:
    """Set up a model that labels texts like yours: a table, labelled lines, or a folder with a folder a label."""
    _set_up(
        "labelled",
        files,
        {"text": text, "label": label[0] if label else None},
        group=group,
        language=language,
        separator=separator,
        label_first=False if label_last else None,
        labels=tuple(label) if label and len(label) > 1 else None,
        second=second,
        **given,
    )


@app.command("rate")
@_spread
def init_rate(
    files: Files,
    *,
    text: Text = None,
    label: Annotated[str | None, typer.Option("--label", help="The number's column; default label.")] = None,
    second: Second = None,
    group: Group = None,
    language: Language = None,
    **given: Unpack[OfTables],
) -> None:
    """Set up a model that gives texts a number, as stars or prices: a table."""
    columns, form = {"text": text, "label": label}, {"kind": "number"}
    _set_up("labelled", files, columns, group=group, language=language, label_form=form, second=second, **given)


@app.command("label")
@_spread
def init_label(
    files: Files,
    *,
    text: Text = None,
    label: Annotated[
        str | None, typer.Option("--label", help="The column of a text's labels: a;b, or a list; default label.")
    ] = None,
    between: Annotated[str, typer.Option("--between", help="What is between the labels of a cell.")] = ";",
    no_labels: Annotated[str, typer.Option("--no-labels", help="What a cell without labels has in it.")] = "none",
    second: Second = None,
    group: Group = None,
    language: Language = None,
    **given: Unpack[OfTables],
) -> None:
    """Set up a model that gives texts each of several labels, or none: a table."""
    columns, form = {"text": text, "label": label}, {"kind": "set", "separator": between, "no_labels": no_labels}
    _set_up("labelled", files, columns, group=group, language=language, label_form=form, second=second, **given)


@app.command("tag")
@_spread
def init_tag(
    files: Files,
    *,
    words: Annotated[
        str | None, typer.Option("--words", help="The words' column: a number from 0 (.conll, default 0), or a key.")
    ] = None,
    tags: Annotated[
        str | None,
        typer.Option("--tags", help="The tags' column: a number (.conll, default -1); upos, xpos, misc:KEY; a key."),
    ] = None,
    scheme: Annotated[
        str | None,
        typer.Option("--scheme", help="How tags mark entities: none, iob1, iob2, bioes; else found out."),
    ] = None,
    group: Annotated[
        str | None, typer.Option("--group", help="document: its sentences share a split; of records a key.")
    ] = None,
    language: Language = None,
    **given: Unpack[Given],
) -> None:
    """Set up a model that tags each word, with parts of speech or entities: CoNLL, CoNLL-U, records of lists."""
    columns = {"words": words, "tags": tags}
    _set_up("tagged", files, columns, group=group, language=language, scheme=scheme, **given)


@app.command("translate")
@_spread
def init_translate(
    files: Files,
    *,
    source: Annotated[str | None, typer.Option("--source", help="The source sentence's column (tables).")] = None,
    target: Annotated[str | None, typer.Option("--target", help="The target sentence's column (tables).")] = None,
    languages: Annotated[
        str | None,
        typer.Option("--languages", help="Source and target language, as en-de; default from the names: train.en ..."),
    ] = None,
    group: Group = None,
    **given: Unpack[OfTables],
) -> None:
    """Set up a model that translates sentences: from tables, TMX, XLIFF, gettext, or two text files of equal length.

    Of two text files the source comes first, also after --valid and --test, which are then given twice.
    """
    _set_up("parallel", files, {"source": source, "target": target}, group=group, language=languages, **given)


@app.command("answer")
@_spread
def init_answer(
    files: Files,
    *,
    question: Annotated[str | None, typer.Option("--question", help="The question's key; default question.")] = None,
    context: Annotated[str | None, typer.Option("--context", help="The key of its text; default context.")] = None,
    answers: Annotated[str | None, typer.Option("--answers", help="The answers' key; default answers.")] = None,
    start: Annotated[
        str | None, typer.Option("--start", help="The key of where they start, if the answers are texts alone.")
    ] = None,
    identifier: Annotated[str | None, typer.Option("--id", help="The key of a question's name.")] = None,
    group: Group = None,
    language: Language = None,
    offsets: Annotated[
        str | None, typer.Option("--offsets", help="What starts count: characters, utf-16, bytes; search: ignore them.")
    ] = None,
    unmatched: Annotated[
        str | None, typer.Option("--unmatched", help="An answer that is not where its start says: error or remove.")
    ] = None,
    **given: Unpack[Given],
) -> None:
    """Set up a model that answers questions from a text: files in SQuAD's format, JSON lines or Parquet."""
    columns = {"question": question, "context": context, "answers": answers, "start": start, "id": identifier}
    choices = {"offsets": offsets, "unmatched": unmatched}
    _set_up("questions", files, columns, group=group, language=language, **choices, **given)
