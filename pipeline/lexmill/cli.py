"""The `lexmill` command: options in, exit codes out. What the commands do is in `lexmill.commands` and the rooms.

Everything but Typer is imported when a command needs it, so `lexmill --help` is there at once.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="lexmill",
    help="Text in, trustworthy models out.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
init_app = typer.Typer(help="Write the configuration for your own files; then `lexmill run`.", no_args_is_help=True)
app.add_typer(init_app, name="init")

Targets = Annotated[list[str] | None, typer.Argument(metavar="[STAGE]...", help="Stages or groups; default all.")]
Jobs = Annotated[int, typer.Option("--jobs", "-j", min=1, max=64, help="Light stages side by side.")]
ModelName = Annotated[str | None, typer.Option("--model", "-m", help="Which model, where there are several.")]
Prompts = Annotated[list[str] | None, typer.Argument(metavar="[PROMPT]...", help="Default: the lines of stdin.")]
Texts = Annotated[list[str] | None, typer.Argument(metavar="[TEXT]...", help="Default: the lines of stdin.")]
Sentences = Annotated[list[str] | None, typer.Argument(metavar="[SENTENCE]...", help="Default: the lines of stdin.")]
Files = Annotated[list[Path], typer.Argument(metavar="FILE...", help=".txt .jsonl .csv .tsv, also .gz .zst; .parquet")]
Force = Annotated[bool, typer.Option("--force", help="Replace an earlier `lexmill init`; a backup is kept.")]
CorpusName = Annotated[str | None, typer.Option("--name", help="The corpus's name; default from the file's.")]
GroupColumn = Annotated[
    str | None, typer.Option("--group", help="Column whose value keeps records in one split (author, thread, ...).")
]
Encoding = Annotated[str | None, typer.Option("--encoding", help="The files' encoding, as latin-1; default utf-8.")]
Quoting = Annotated[
    bool | None, typer.Option("--quoting/--no-quoting", help="Whether quotes have a meaning in a .csv or .tsv.")
]


@app.command()
def run(
    targets: Targets = None,
    jobs: Jobs = 2,
    why: Annotated[bool, typer.Option("--why", help="Only say what would run, and why.")] = False,
) -> None:
    """Run what changed, publish the models, show the results."""
    from lexmill.commands import run as command

    if why:
        command.show_reasons(targets or ())
        return
    raise typer.Exit(command.run(targets or (), jobs))


@app.command()
def check() -> None:
    """Look for every fault before spending hours: params, execution settings, files, disk; and whether bf16 pays."""
    from lexmill.commands.check import check as command

    command()


@app.command()
def compose(
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[GROUP=CHOICE]...", help="Hydra overrides, as experiment=full.")
    ] = None,
    *,
    keep: Annotated[bool, typer.Option("--keep", help="Leave params.yaml; only write its mixtures' stages.")] = False,
) -> None:
    """Write params.yaml from conf/ and the choices given, and the stages of its mixtures into dvc.yaml."""
    from lexmill.compose import write_params, write_stages

    path = write_stages(overrides or ()) if keep else write_params(overrides or ())
    print(f"{path} written", file=sys.stderr)


@app.command()
def params(
    execution: Annotated[bool, typer.Option("--execution", help="The keys of conf/execution/ instead.")] = False,
) -> None:
    """Each key of params.yaml with its meaning, unit, bounds and default."""
    from lexmill.commands.describe import describe

    print(describe(execution=execution))


@app.command()
def plan(
    models: Annotated[
        list[str] | None, typer.Argument(metavar="[MODEL]...", help="Language models of params.yaml; default all.")
    ] = None,
    *,
    devices: Annotated[int | None, typer.Option(min=1, help="How many; default as conf/execution/ says.")] = None,
    device_name: Annotated[str | None, typer.Option(help="Which, for its peak: H100, 'RTX 4090', ...")] = None,
    tflops: Annotated[float | None, typer.Option(min=0.001, help="The peak of one device, in place of a name.")] = None,
    utilisation: Annotated[float, typer.Option(min=0.001, max=1, help="The share of the peak that is reached.")] = 0.4,
    micro_batch: Annotated[int | None, typer.Option(min=1, help="Most tokens that a device computes at once.")] = None,
    vocab_size: Annotated[int, typer.Option(min=0, help="In place of the tokenizer's; 0: the tokenizer's.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="As JSON, in bytes and seconds.")] = False,
) -> None:
    """Before anything runs: parameters, FLOPs, memory of a device under each strategy, and time."""
    from lexmill.commands.plan import plan as command

    command(
        models or (),
        devices=devices,
        device_name=device_name,
        tflops=tflops,
        utilisation=utilisation,
        micro_batch=micro_batch,
        vocab_size=vocab_size,
        as_json=json,
    )


@app.command()
def results(json: Annotated[bool, typer.Option("--json", help="As JSON, the same bytes every time.")] = False) -> None:
    """Each model's test figures beside its floors."""
    from lexmill.commands.show import show_results

    show_results(as_json=json)


@app.command()
def publish() -> None:
    """Bring the packaged models into the registry, once each; the better one becomes champion."""
    from lexmill.commands.run import publish as command

    command()


@app.command()
def generate(
    prompts: Prompts = None,
    *,
    model: ModelName = None,
    max_tokens: Annotated[int | None, typer.Option(help="Longest continuation, in tokens.")] = None,
    temperature: Annotated[float | None, typer.Option(help="0: always the likeliest token.")] = None,
    top_k: Annotated[int | None, typer.Option(help="Draw from the k likeliest tokens; 0: all.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Draw from the likeliest tokens that hold this mass.")] = None,
    min_p: Annotated[float | None, typer.Option(help="Leave out what has less than this of the likeliest's.")] = None,
    repetition_penalty: Annotated[
        float | None, typer.Option(help="Above 1: tokens that the text holds become less likely.")
    ] = None,
    stop: Annotated[list[str] | None, typer.Option(help="End before this text; may be given again.")] = None,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same text.")] = None,
    stream: Annotated[
        bool | None, typer.Option(help="Show one text as it is written; the default at a terminal.")
    ] = None,
) -> None:
    """Continue prompts with the champion of a language model."""
    from lexmill.commands.use import generate as command

    given = {
        "max_tokens": max_tokens,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "repetition_penalty": repetition_penalty,
        "stop": stop or None,
        "seed": seed,
    }
    command(prompts, model, {key: value for key, value in given.items() if value is not None}, stream)


@app.command()
def classify(texts: Texts = None, model: ModelName = None) -> None:
    """Label texts with the champion of a classifier: the label, a tab, its probability."""
    from lexmill.commands.use import classify as command

    command(texts, model)


@app.command()
def translate(sentences: Sentences = None, model: ModelName = None) -> None:
    """Translate sentences with the champion of a translator."""
    from lexmill.commands.use import translate as command

    command(sentences, model)


@app.command()
def export(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A language model of this project, or a registered one.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new folder.")],
) -> None:
    """Write a language model in Hugging Face format, for transformers."""
    from lexmill.commands.export import export_model

    export_model(name, folder)


@app.command()
def schedule(
    cron: Annotated[str, typer.Option("--cron", help='When, as in "0 2 * * *".')],
    targets: Targets = None,
    jobs: Jobs = 2,
) -> None:
    """Run the pipeline on a schedule, as a Prefect flow, until Ctrl-C."""
    from lexmill.commands.schedule import schedule as command

    raise typer.Exit(command(cron, targets or (), jobs))


@app.command()
def ui() -> None:
    """Serve the MLflow and Prefect pages on 127.0.0.1, until Ctrl-C."""
    from lexmill.commands.ui import ui as command

    command()


@init_app.command("lm")
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
    """A language model of your text."""
    from lexmill.initialize import initialize

    reading = _reading(encoding, quoting)
    initialize("text", files, {"text": text}, group=group, name=name, force=force, reading=reading)


@init_app.command("classify")
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
    """A classifier of your labelled texts."""
    from lexmill.initialize import initialize

    initialize(
        "labelled",
        files,
        {"text": text, "label": label},
        group=group,
        name=name,
        force=force,
        reading=_reading(encoding, quoting),
    )


@init_app.command("translate")
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
    """A translator of your sentence pairs: one table, or two text files of equal length (source first)."""
    from lexmill.initialize import initialize

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


def main() -> None:
    """The console script: faults as sentences on standard error, each with its exit code."""
    from lexmill.progress import fill_standard_streams, speak_utf8

    fill_standard_streams()
    if sys.getfilesystemencoding() != "utf-8" and os.environ.get("PYTHONUTF8") != "1":
        # In an old locale, paths and arguments beyond ASCII arrive broken: once more, in Python's UTF-8 mode.
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | {"PYTHONUTF8": "1"})
    speak_utf8()
    try:
        app()
    except Exception as error:
        from lexmill.errors import LexmillError, machine_fault

        fault = machine_fault(error) if isinstance(error, OSError) else error
        if not isinstance(fault, LexmillError):
            raise
        print(fault, file=sys.stderr)
        sys.exit(fault.exit_code)


if __name__ == "__main__":
    main()
