"""The `lexmill` command: options in, exit codes out. The commands' work is in `lexmill.commands`.

All but Typer is imported when a command needs it, so that `lexmill --help` is quick.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import traceback
from typing import Annotated, Any, NoReturn

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until a command begins Ctrl-C ends it without a word

import typer
from typer.core import TyperGroup

from lexmill.base.errors import EXIT_INTERRUPTED
from lexmill.base.shown import print_line
from lexmill.commands import cli_team, cli_use
from lexmill.commands import init as cli_init
from lexmill.commands.cli_team import Jobs, Targets, finite


class _Commands(TyperGroup):
    """The commands; what Typer says of a wrong option or argument, which it repeats, is printed as all errors are."""

    def main(self, *arguments: Any, **how: Any) -> NoReturn:
        try:
            code = super().main(*arguments, **how | {"standalone_mode": False})
        except typer.Abort:
            print_line("aborted", sys.stderr)
            code = 1
        except typer.TyperException as error:
            shown = io.StringIO()
            error.show(shown)  # type: ignore[attr-defined]  # each that Typer raises has it
            print_line(shown.getvalue().rstrip(), sys.stderr)
            code = error.exit_code
        sys.exit(code if isinstance(code, int) else 0)


app = typer.Typer(
    name="lexmill",
    cls=_Commands,
    help="Text in, trustworthy models out.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
def run(
    targets: Targets = None,
    jobs: Jobs = 2,
    why: Annotated[bool, typer.Option("--why", help="Only say what would run, and why.")] = False,
    worktree: Annotated[
        str | None, typer.Option(metavar="NAME", help="Run in a git worktree made from HEAD, next to a run here.")
    ] = None,
    params: Annotated[
        bool, typer.Option("--params", help="Take the present params.yaml, dvc.yaml and pins along.")
    ] = False,
) -> None:
    """Run what changed, publish the models, show the results."""
    from lexmill.commands import run as command

    if params and worktree is None:
        raise typer.BadParameter("it needs --worktree", param_hint="--params")
    if worktree is not None:
        arguments = [*(targets or ()), f"--jobs={jobs}", *(["--why"] if why else [])]
        command.run_in_worktree(worktree, arguments, take_params=params)
    if why:
        command.show_reasons(targets or ())
        return
    raise typer.Exit(command.run(targets or (), jobs))


@app.command()
def check() -> None:
    """Find every error before spending hours: params, execution settings, files, disk; say whether bf16 pays."""
    from lexmill.commands.check import check as command

    command()


@app.command()
def compose(
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[GROUP=CHOICE]...", help="Hydra overrides, as experiment=full.")
    ] = None,
    *,
    keep: Annotated[
        bool,
        typer.Option("--keep", help="Keep the choices of params.yaml; write what follows from them."),
    ] = False,
) -> None:
    """Write params.yaml from conf/ and the given choices, and the stages of its mixtures into dvc.yaml."""
    from lexmill.config.compose import write_params, write_stages

    path = write_stages(overrides or ()) if keep else write_params(overrides or ())
    print_line(f"{path} written", sys.stderr)


@app.command()
def params(
    execution: Annotated[bool, typer.Option("--execution", help="The keys of conf/execution/ instead.")] = False,
) -> None:
    """Print each key of params.yaml with its meaning, unit, bounds and default."""
    from lexmill.commands.describe import describe

    print_line(describe(execution=execution))


@app.command()
def plan(
    models: Annotated[
        list[str] | None, typer.Argument(metavar="[MODEL]...", help="Language models of params.yaml; default all.")
    ] = None,
    *,
    devices: Annotated[
        int | None, typer.Option(min=1, max=1_000_000, help="Number of devices; default of conf/execution/.")
    ] = None,
    device_name: Annotated[str | None, typer.Option(help="Device, for its peak: H100, 'RTX 4090', ...")] = None,
    tflops: Annotated[
        float | None, typer.Option(min=0.001, max=1e6, callback=finite, help="Peak of one device, instead of a name.")
    ] = None,
    utilisation: Annotated[
        float, typer.Option(min=0.001, max=1, callback=finite, help="Share of the peak that is reached.")
    ] = 0.4,
    micro_batch: Annotated[
        int | None, typer.Option(min=1, max=1_000_000_000, help="Most tokens that a device computes at once.")
    ] = None,
    vocab_size: Annotated[int, typer.Option(min=0, max=10_000_000, help="Vocabulary; 0: that of the tokenizer.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="As JSON, in bytes and seconds.")] = False,
) -> None:
    """Estimate parameters, FLOPs, memory of a device under each strategy, and time, before anything runs."""
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
    """Show each model's test metrics next to its baselines."""
    from lexmill.commands.run import print_results

    print_results(as_json=json)


@app.command()
def ui() -> None:
    """Serve the MLflow and Prefect pages on 127.0.0.1, until Ctrl-C."""
    from lexmill.commands.ui import ui as command

    command()


app.add_typer(cli_team.app)
app.add_typer(cli_use.app)
app.add_typer(cli_init.app, name="init")


def main() -> None:
    """Run the console script: report an error as a sentence on standard error, with its exit code."""
    from lexmill.base.progress import fill_standard_streams, speak_utf8
    from lexmill.base.quiet import quieten
    from lexmill.base.workspace import run_own_code

    fill_standard_streams()
    if sys.getfilesystemencoding() != "utf-8" and os.environ.get("PYTHONUTF8") != "1":
        # An old locale breaks paths and arguments beyond ASCII: start again in Python's UTF-8 mode.
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | {"PYTHONUTF8": "1"})
    speak_utf8()
    quieten()
    try:
        _check_folder()
        run_own_code()
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        app()
    except KeyboardInterrupt:  # before or after what Typer handles
        sys.exit(EXIT_INTERRUPTED)
    except Exception as error:
        from lexmill.base.errors import EXIT_BUG, LexmillError, machine_error

        known = machine_error(error) if isinstance(error, OSError) else error
        if not isinstance(known, LexmillError):
            print_line(traceback.format_exc().rstrip(), sys.stderr)
            sys.exit(EXIT_BUG)
        print_line(known, sys.stderr)
        sys.exit(known.exit_code)


def _check_folder() -> None:
    """Raise `UserError` where the present folder cannot be used: every path would fail in its own way."""
    from lexmill.base.errors import UserError

    try:
        os.getcwd()
    except OSError as error:
        raise UserError(f"the present folder cannot be used ({error.strerror}); change to another one") from None


if __name__ == "__main__":
    main()
