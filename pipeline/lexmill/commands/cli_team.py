"""`lexmill publish | schedule`: what a team needs that runs the pipeline every night."""

from __future__ import annotations

from typing import Annotated

import typer

from lexmill.commands.options import Jobs, Targets

app = typer.Typer()


@app.command()
def publish() -> None:
    """Bring the packaged models into the registry, once each; the better one becomes champion."""
    from lexmill.commands.run import publish as command

    command()


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
def refresh(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[CORPUS]...", help="Corpora or checkpoints; default all that move.")
    ] = None,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would move.")] = False,
) -> None:
    """Look at the sources that move (newest versions, branches, addresses, files) and pin what they are now."""
    from lexmill.commands.refresh import command

    raise typer.Exit(command(names or (), dry_run=dry_run))
