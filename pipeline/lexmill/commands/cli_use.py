"""Commands that use a model: each kind's verb, `lexmill serve`, `lexmill export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lexmill import kinds
from lexmill.commands import use

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
def export(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A model of this project, or a registered one.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new folder.")],
) -> None:
    """Write a model in Hugging Face format, for transformers."""
    from lexmill.commands.deploy import export_model

    export_model(name, folder)
