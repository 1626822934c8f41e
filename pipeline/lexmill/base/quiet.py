"""What silences our libraries: no telemetry, update checks or progress bars; their warnings as ours are printed.

Values set by the user stay. Call `quieten` before those libraries are imported.
"""

from __future__ import annotations

import logging
import os
import sys

from lexmill.base.shown import print_line

_QUIET = {
    "DO_NOT_TRACK": "true",
    "DVC_NO_ANALYTICS": "1",
    "GIT_PYTHON_REFRESH": "quiet",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}


def quieten(*, offline: bool = False) -> None:
    """Set what is unset; `offline` also keeps the Hugging Face libraries from checking for newer files."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    if offline:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
    logging.lastResort = _Shown(logging.WARNING)


class _Shown(logging.Handler):
    """Prints what no other handler takes, without control characters and secrets (a whole address in a warning)."""

    def emit(self, record: logging.LogRecord) -> None:
        print_line(self.format(record), sys.stderr)
