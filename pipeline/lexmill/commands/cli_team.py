"""Commands for a team that runs the pipeline every night: `lexmill publish`, `schedule`, `nightly`, ..."""

from __future__ import annotations

import math
from typing import Annotated

import typer

Targets = Annotated[list[str] | None, typer.Argument(metavar="[STAGE]...", help="Stages or groups; default all.")]
Jobs = Annotated[int, typer.Option("--jobs", "-j", min=1, max=64, help="Light stages that run in parallel.")]

app = typer.Typer()


def finite(value: float | None) -> float | None:
    """Refuse `nan`, which is within any bounds."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number")
    return value


@app.command()
def publish() -> None:
    """Register the packaged models, once each; the better one becomes champion."""
    from lexmill.commands.run import publish as command

    command()


@app.command()
def sync() -> None:
    """Send what waits here to MLflow: points of trainings and records of runs, each once."""
    from lexmill.commands.sync import sync as command

    command()


@app.command()
def promote(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A registered model.")],
    version: Annotated[str | None, typer.Argument(metavar="[VERSION]", help="Default: the newest.")] = None,
    reason: Annotated[str, typer.Option("--reason", help="Kept with the version.")] = "",
) -> None:
    """Make a version the champion by hand."""
    from lexmill.commands.champions import promote as command

    command(name, version, reason)


@app.command()
def rollback(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A registered model.")],
    reason: Annotated[str, typer.Option("--reason", help="Kept with the version.")] = "",
) -> None:
    """Go back to the previous champion; a second call goes back one further."""
    from lexmill.commands.champions import rollback as command

    command(name, reason)


@app.command()
def champions(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Show all versions of this model.")] = None,
) -> None:
    """Show the champion of each registered model, since when and why."""
    from lexmill.commands.champions import champions as command

    command(name)


@app.command()
def schedule(
    targets: Targets = None,
    *,
    cron: Annotated[str | None, typer.Option("--cron", help='When, as in "0 2 * * *".')] = None,
    interval: Annotated[str | None, typer.Option("--interval", help="How often, as in '6 h', '30 min', 90.")] = None,
    timezone: Annotated[str, typer.Option("--timezone", help="Time zone of --cron, as in Europe/Berlin.")] = "UTC",
    approve: Annotated[bool, typer.Option("--approve", help="Ask on the page before a champion is replaced.")] = False,
    approval_hours: Annotated[
        float, typer.Option("--approval-hours", min=0.01, max=8760, callback=finite, help="How long to wait for it.")
    ] = 12,
    nightly: Annotated[bool, typer.Option("--nightly", help="Run `lexmill nightly` each time.")] = False,
    branch: Annotated[str | None, typer.Option("--branch", help="With --nightly: the branch it commits to.")] = None,
    push: Annotated[
        str | None,
        typer.Option("--push", metavar="REMOTE", help="With --nightly: push the outputs to DVC's, the branch to this."),
    ] = None,
    jobs: Jobs = 2,
) -> None:
    """Run the pipeline on a schedule, as a Prefect flow, until Ctrl-C."""
    from lexmill.commands.schedule import Timetable
    from lexmill.commands.schedule import schedule as command

    options = ["--jobs", str(jobs), "--approval-hours", f"{approval_hours:g}"]
    options += [word for word, wanted in (("--approve", approve), ("--nightly", nightly)) if wanted]
    options += [word for pair in (("--branch", branch), ("--push", push)) if pair[1] for word in pair if word]
    raise typer.Exit(command(Timetable.parse(cron, interval, timezone), [*options, *(targets or ())]))


@app.command()
def refresh(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[CORPUS]...", help="Corpora or checkpoints; default: all that move.")
    ] = None,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would move.")] = False,
) -> None:
    """Check the sources that move (newest versions, branches, addresses, files) and pin them as they are now."""
    from lexmill.commands.refresh import command

    raise typer.Exit(command(names or (), dry_run=dry_run))


@app.command()
def search(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A search of conf/search/, as gpt.")],
    trials: Annotated[
        int | None, typer.Option("--trials", min=1, max=1_000_000, help="Trainings in all; default: its own.")
    ] = None,
    *,
    adopt: Annotated[bool, typer.Option("--adopt", help="Write the best as a choice of conf/.")] = False,
) -> None:
    """Search a model's hyper-parameters by validation loss; the same command resumes a stopped search."""
    from lexmill.commands.search import search as command

    raise typer.Exit(command(name, trials, take=adopt))


@app.command()
def compare(
    presets: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PRESET]...", help="Choices of conf/model/; default: language models named *_tiny."),
    ] = None,
    *,
    budget: Annotated[
        list[str] | None,
        typer.Option(
            "--budget", help="Of each model: '1e6 tokens', '3e12 flops' or '60 seconds'; beside it '2e6 parameters'."
        ),
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, max=1000, help="Trainings at the best rate.")] = 3,
    factor: Annotated[
        float, typer.Option("--factor", min=1.01, max=100, callback=finite, help="Between the rates of the grid.")
    ] = 2.0,
    data: Annotated[
        str | None, typer.Option("--data", metavar="MODEL", help="All read what this model of params.yaml reads.")
    ] = None,
) -> None:
    """Train models of different families on equal terms; the same command resumes a stopped comparison."""
    from lexmill.commands.compare import compare as command

    raise typer.Exit(command(presets or (), budget or (), seeds=seeds, factor=factor, data=data))


@app.command()
def seeds(
    models: Annotated[list[str], typer.Argument(metavar="MODEL", help="Models of params.yaml.")],
    *,
    count: Annotated[int, typer.Option("--seeds", min=2, max=1000, help="Trainings of each model.")] = 3,
) -> None:
    """Train models with several seeds, one entry of means and spreads each; the same command resumes a stopped one."""
    from lexmill.commands.seeds import seeds as command

    raise typer.Exit(command(models, count))


@app.command()
def nightly(
    targets: Targets = None,
    *,
    branch: Annotated[str, typer.Option("--branch", help="Where the results are committed.")] = "nightly",
    push: Annotated[
        str | None,
        typer.Option("--push", metavar="REMOTE", help="Push the outputs to DVC's remote, then the branch to this one."),
    ] = None,
    jobs: Jobs = 2,
) -> None:
    """Refresh the sources, run what changed, publish, and commit the results to a branch; once, now."""
    from lexmill.commands.nightly import nightly as command

    raise typer.Exit(command(targets or (), jobs, branch=branch, push=push))


@app.command()
def doctor(
    *,
    fix: Annotated[bool, typer.Option("--fix", help="Repair what is safe to repair.")] = False,
    checkpoints: Annotated[
        bool, typer.Option("--checkpoints", help="With --fix: also remove checkpoints that are kept for later.")
    ] = False,
) -> None:
    """Find what dead processes left: runs, locks, half-written files, servers; and full disks."""
    from lexmill.commands.doctor import doctor as command

    raise typer.Exit(command(fix=fix, remove_checkpoints=checkpoints))
