"""`lexmill sync`, also done at the end of each run: send what waits in the workspace to MLflow."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path

from lexmill import params
from lexmill.base.errors import LexmillError, UserError
from lexmill.base.progress import bar, say
from lexmill.compute import execution
from lexmill.compute.execution import Execution
from lexmill.params import Params
from lexmill.runner.record import unfinished
from lexmill.tracking import spool
from lexmill.tracking.spool import Sending, Waiting

_SECONDS_AFTER_A_RUN = 60.0


def sync(root: Path = Path()) -> None:
    """Send all that waits, and report what was sent and what is left (`lexmill sync`).

    Raises:
        UserError: `publish` is false in the execution settings; MLflow is not installed; the store refuses us.
        RetryableError: the store does not answer; what was sent stays.
    """
    choices, settings = params.load(root / "params.yaml"), execution.load_execution(root)
    if not settings.publish:
        raise UserError("publish is false in the execution settings, so nothing is sent; set it to true")
    if find_spec("mlflow") is None:
        raise UserError("MLflow is not installed here; run this where it is")
    try:
        left = send(choices, settings, say, root)
    except LexmillError:
        say(f"not sent: {_words(spool.waiting(root))}")
        raise
    for line in left.running:
        say(f"left: {line}")
    say("nothing else waits" if left.running else "nothing waits")


def send(
    choices: Params, settings: Execution, say: Callable[[str], None], root: Path, seconds: float | None = None
) -> Waiting:
    """Close the records of killed runs, send all that waits; return what still waits.

    Raises:
        RetryableError: the store does not answer, or takes longer than `seconds`.
        UserError: it refuses us.
    """
    for killed in unfinished(root):
        killed.end(None)
    found = spool.waiting(root)
    if not found:
        return found
    from lexmill.registry.record import run_of_model

    return spool.send(
        Sending(
            root=root,
            uri=settings.tracking_uri,
            experiment=choices.experiment,
            run_of_model=lambda client, experiment, name: run_of_model(client, experiment, name, root),
            say=lambda line: say(f"sent to MLflow: {line}"),
            seconds=seconds,
        )
    )


def tracked(settings: Execution) -> bool:
    """Return whether runs here are sent to MLflow at all."""
    return settings.publish and find_spec("mlflow") is not None


def send_after_run(choices: Params, settings: Execution, say: Callable[[str], None], root: Path) -> None:
    """Send what waits after a run. A tracking failure is reported, not raised."""
    if not tracked(settings):
        return
    try:
        with bar("send the run to MLflow") if spool.waiting(root) else nullcontext():
            send(choices, settings, lambda _: None, root, _SECONDS_AFTER_A_RUN)
    except LexmillError as error:
        say(f"not all is in MLflow ({_words(spool.waiting(root))} wait): {error}")


def _words(waits: Waiting) -> str:
    parts = [(len(waits.points), "training"), (len(waits.records), "run")]
    return " and ".join(f"{count} {what}{'' if count == 1 else 's'}" for count, what in parts if count) or "nothing"
