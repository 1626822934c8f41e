"""The command line of the flow.

    python -m flows run [STAGE...] [--jobs N] [--approve]            now, with the terminal progress of `lexmill run`
    python -m flows serve --cron "0 2 * * *"  (or --interval '6 h')  on a schedule
    python -m flows changed CORPUS                                   send the event that starts scheduled flows

Where no Prefect server is configured, one is started on the workspace's own database (.prefect/), where `lexmill ui`
shows the runs afterwards; one that already serves this workspace is used.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from flows.server import prefect_server
from lexmill import params
from lexmill.base.errors import EXIT_INTERRUPTED, EXIT_RETRY, EXIT_TERMINATED, UserError
from lexmill.base.progress import say, speak_utf8
from lexmill.base.quiet import quieten
from lexmill.base.shown import print_line
from lexmill.base.strict import nearest
from lexmill.base.surroundings import settle
from lexmill.base.workspace import only_one
from lexmill.commands import servers
from lexmill.commands.nightly import BRANCH
from lexmill.commands.run import preflight, run_nothing
from lexmill.commands.schedule import Timetable
from lexmill.stages.entry import outcome, terminate
from lexmill.tracking.links import base_url

_Number = TypeVar("_Number", int, float)


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, run it, exit with its code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.work is not _changed and not options.nightly and (options.push or options.branch != BRANCH):
        parser.error("--branch and --push say where a nightly run commits: add --nightly")
    settle()
    quieten()
    speak_utf8()
    signal.signal(signal.SIGTERM, terminate)  # Prefect gives SIGTERM back to the handler it found
    code, message = outcome(lambda: options.work(options))
    if message and code not in (EXIT_INTERRUPTED, EXIT_TERMINATED):
        say(message)
    if code == EXIT_RETRY:  # Prefect would go on for a minute to send its last logs to a server that is gone
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m flows", description="The pipeline as a Prefect flow.")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run what changed, now")
    run.set_defaults(work=_run)
    serve = commands.add_parser("serve", help="run it on a schedule, until Ctrl-C")
    serve.set_defaults(work=_serve)
    serve.add_argument("--cron", help='when, as in "0 2 * * *"')
    serve.add_argument("--interval", help="how often, as in '6 h'")
    serve.add_argument("--timezone", default="UTC", help="of the cron expression (default UTC)")
    for command in (run, serve):
        command.add_argument("targets", nargs="*", metavar="STAGE", help="stages or groups; default all")
        command.add_argument("--jobs", type=_above(0, int), default=2, help="light stages side by side (default 2)")
        command.add_argument("--approve", action="store_true", help="ask before a champion is replaced")
        command.add_argument(
            "--approval-hours", type=_above(0, float), default=12.0, help="how long to wait for it (default 12)"
        )
        command.add_argument("--nightly", action="store_true", help="check the sources before, commit after")
        command.add_argument("--branch", default=BRANCH, help=f"where a nightly run commits (default {BRANCH})")
        command.add_argument(
            "--push", metavar="REMOTE", help="the git remote that the branch is pushed to, after its outputs"
        )
    changed = commands.add_parser("changed", help="report to the scheduled flows that a corpus has changed")
    changed.set_defaults(work=_changed)
    changed.add_argument("corpus", help="its name in params.yaml")
    return parser


class _Parser(argparse.ArgumentParser):
    """A parser whose errors, which repeat the wrong argument, are printed as all errors are."""

    def error(self, message: str) -> NoReturn:
        print_line(f"{self.format_usage()}{self.prog}: error: {message}", sys.stderr)
        raise SystemExit(2)


def _above(low: float, kind: type[_Number]) -> Callable[[str], _Number]:
    def read(text: str) -> _Number:
        number = kind(text)
        if not number > low:
            raise argparse.ArgumentTypeError(f"must be above {low:g}, got {text}")
        return number

    read.__name__ = kind.__name__  # argparse names it when the text is no number
    return read


def _parameters(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "targets": options.targets or None,
        "jobs": options.jobs,
        "approve": options.approve,
        "approval_hours": options.approval_hours,
        "nightly": options.nightly,
        "branch": options.branch,
        "push": options.push,
    }


def _run(options: argparse.Namespace) -> None:
    preflight()
    # Approval of a version to publish needs the page, and a nightly run does more.
    if not (options.approve or options.nightly) and run_nothing(options.targets, options.jobs):
        return
    # The terminal shows the runner's progress; Prefect's own lines go to its pages.
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    os.environ.setdefault("PREFECT_LOGGING_INTERNAL_LEVEL", "CRITICAL")
    with prefect_server(Path.cwd()) as wait:
        from flows.pipeline import run_now  # a few seconds, while the server starts

        wait()
        _tell_page()
        run_now(_parameters(options))


def _serve(options: argparse.Namespace) -> None:
    timetable = Timetable.parse(options.cron, options.interval, options.timezone)
    preflight()
    root = Path.cwd()
    with only_one("schedule", root), prefect_server(root) as wait:
        from flows.serving import serve, when

        schedule = when(timetable)
        wait()
        _tell_page()
        say(f"scheduled {timetable.words}; Ctrl-C ends the schedule")
        serve(schedule, _parameters(options), root)


def _tell_page() -> None:
    """Print the address of the page, where the run can be watched and cancelled."""
    api = servers.configured_prefect()
    if api is not None:
        say(f"the Prefect page: {base_url(api).removesuffix('/api')}")


def _changed(options: argparse.Namespace) -> None:
    choices = params.load()
    if options.corpus not in choices.corpora:
        raise UserError(f"corpora.{options.corpus} is not in params.yaml{nearest(options.corpus, choices.corpora)}")
    root = Path.cwd()
    if servers.configured_prefect() is None and servers.running_prefect(root) is None:
        raise UserError("no schedule listens: start `lexmill schedule`, or name the Prefect server in PREFECT_API_URL")
    with prefect_server(root):
        from flows.serving import tell_changed

        tell_changed(options.corpus)
    say(f"reported that corpus '{options.corpus}' changed")


if __name__ == "__main__":
    main()
