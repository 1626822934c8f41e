"""The command line of the flow: `run` now, with the terminal progress of `lexmill run`; `serve` on a schedule.

Where no Prefect server is configured, one is started on the workspace's own database (.prefect/), where `lexmill ui`
shows the runs afterwards; one that already serves this workspace is used.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lexmill.commands import servers
from lexmill.commands.run import preflight, run_nothing
from lexmill.errors import EXIT_INTERRUPTED, EXIT_TERMINATED, UserError
from lexmill.progress import bar, say, speak_utf8
from lexmill.quiet import quieten
from lexmill.stages.entry import outcome, terminate


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, do it, exit with its code."""
    parser = argparse.ArgumentParser(prog="python -m flows.pipeline", description="The pipeline as a Prefect flow.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, what in (("run", "run what changed, now"), ("serve", "run it on a schedule, until Ctrl-C")):
        command = commands.add_parser(name, help=what)
        command.add_argument("targets", nargs="*", metavar="STAGE", help="stages or groups; default all")
        command.add_argument("--jobs", type=int, default=2, help="light stages side by side (default 2)")
        command.add_argument("--approve", action="store_true", help="ask before a champion is replaced")
        command.add_argument("--approval-hours", type=float, default=12.0, help="how long to wait for it (default 12)")
        if name == "serve":
            command.add_argument("--cron", required=True, help='when, as in "0 2 * * *"')
    options = parser.parse_args(arguments)
    if options.jobs < 1:
        parser.error(f"--jobs must be at least 1, got {options.jobs}")
    quieten()
    speak_utf8()
    signal.signal(signal.SIGTERM, terminate)  # Prefect gives SIGTERM back to the handler it found
    code, message = outcome(lambda: _run(options) if options.command == "run" else _serve(options))
    if message and code not in (EXIT_INTERRUPTED, EXIT_TERMINATED):
        say(message)
    sys.exit(code)


def _run(options: argparse.Namespace) -> None:
    preflight()
    # With approval asked for, a version that waits to be published needs the page.
    if not options.approve and run_nothing(options.targets, options.jobs):
        return
    # The terminal shows the runner's progress; Prefect's own lines go to its pages.
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    with prefect_server(Path.cwd()) as wait:
        from flows.pipeline import run_now  # a few seconds, while the server starts

        wait()
        run_now(options.targets or None, options.jobs, options.approve, options.approval_hours)


def _serve(options: argparse.Namespace) -> None:
    preflight()
    with prefect_server(Path.cwd()) as wait:
        from prefect.schedules import Cron

        from flows.pipeline import pipeline

        try:
            schedule = Cron(options.cron)
        except ValueError as error:
            raise UserError(f"--cron '{options.cron}': {error}") from None
        wait()
        say(f"scheduled '{options.cron}'; Ctrl-C ends the schedule")
        pipeline.serve(
            name="scheduled",
            schedule=schedule,
            parameters={"targets": options.targets or None, "jobs": options.jobs},
            limit=1,
            print_starting_message=False,
        )


@contextmanager
def prefect_server(root: Path) -> Iterator[Callable[[], None]]:
    """PREFECT_API_URL for the block: the configured server, the one that runs here, or one of our own.

    Prefect must not be imported before: it reads its settings once. Yields what waits until the server answers.
    """
    if servers.configured_prefect() is not None:
        yield lambda: None
        return
    os.environ["PREFECT_HOME"] = str(servers.prefect_home(root))
    url = servers.running_prefect(root)
    if url is not None:
        os.environ["PREFECT_API_URL"] = f"{url}/api"
        yield lambda: None
        return
    with servers.serving_prefect(root) as server:
        os.environ["PREFECT_API_URL"] = f"{server.url}/api"

        def wait() -> None:
            with bar("starting the Prefect server"):
                server.wait()

        try:
            yield wait
        finally:
            os.environ.pop("PREFECT_API_URL", None)
