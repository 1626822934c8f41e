"""lexmill: text in, trustworthy models out."""

import signal
import sys
from pathlib import Path

__version__ = "0.1.0"


def _is_command() -> bool:
    """Whether this Python was started for `lexmill` or for a stage, and not by somebody who imports the package."""
    words = sys.orig_argv[1:]
    if "-m" in words[:-1]:
        return words[words.index("-m") + 1].startswith(("lexmill.stages.", "lexmill.cli"))
    return bool(words) and Path(words[0]).name == "lexmill"


# Ctrl-C while a command is still importing ends it without a traceback; then the command itself takes it up.
if _is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
