"""`lexmill generate | classify | translate | serve | export`: the use of models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

app = typer.Typer()

ModelName = Annotated[str | None, typer.Option("--model", "-m", help="Which model, where there are several.")]
Prompts = Annotated[list[str] | None, typer.Argument(metavar="[PROMPT]...", help="Default: the lines of stdin.")]
Texts = Annotated[list[str] | None, typer.Argument(metavar="[TEXT]...", help="Default: the lines of stdin.")]
Sentences = Annotated[list[str] | None, typer.Argument(metavar="[SENTENCE]...", help="Default: the lines of stdin.")]


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
    precision: Annotated[
        Literal["float32", "bfloat16"], typer.Option(help="bfloat16: faster for many texts, if the processor has it.")
    ] = "float32",
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
    command(prompts, model, {key: value for key, value in given.items() if value is not None}, stream, precision)


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
def serve(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A registered model.")],
    version: Annotated[str | None, typer.Option("--version", help="Default: the champion.")] = None,
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0: a free one.")] = 5001,
) -> None:
    """Answer HTTP requests with a registered model, until Ctrl-C."""
    from lexmill.commands.serve import serve as command

    command(name, version, host, port)


@app.command()
def export(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A language model of this project, or a registered one.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new folder.")],
) -> None:
    """Write a language model in Hugging Face format, for transformers."""
    from lexmill.commands.export import export_model

    export_model(name, folder)
