"""Send ended trainings to MLflow."""

from __future__ import annotations

from pathlib import Path

from lexmill import kinds
from lexmill.base.errors import LexmillError
from lexmill.base.progress import say
from lexmill.compute.execution import Execution


class Sending:
    """Sends ended trials to MLflow; a failure is reported once and does not stop the work.

    Args:
        settings: where the store is.
        root: the workspace.
        what: the word for the work, "search".
    """

    def __init__(self, settings: Execution, root: Path, what: str) -> None:
        self._settings, self._root, self._what, self._failure = settings, root, what, ""

    def __call__(self, folder: Path) -> None:
        if not self._settings.publish:
            return
        from lexmill.tracking.searches import send

        try:
            send(self._settings.tracking_uri, folder, self._root, kinds.metric_names())
        except LexmillError as error:
            failure = str(error)
        except Exception as error:  # an unexpected answer must not stop the work: the trials are on disk
            failure = f"{type(error).__name__}: {error}"
        else:
            self._failure = ""
            return
        if not self._failure:
            say(f"not in MLflow yet, the {self._what} goes on: {failure}")
        self._failure = failure

    def report(self) -> None:
        """Report trials that are still not sent."""
        if self._failure:
            say(f"not all trials are in MLflow ({self._failure}); the same command sends them")
