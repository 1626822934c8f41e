"""lexmill: text in, trustworthy models out."""

import sys

# `python -m` looks in the present folder first: a file `tokenizers.py` or `signal.py` would stand for the library.
# (While Python is on its way to the module, the first argument is "-m".)
if sys.argv[:1] == ["-m"] and not sys.flags.safe_path:
    sys.path.append(sys.path.pop(0))

import signal
from pathlib import Path

__version__ = "0.1.0"


def _is_command() -> bool:
    """Whether this Python was started for `lexmill` or for a stage, and not by somebody who imports the package."""
    words = sys.orig_argv[1:]
    if "-m" in words[:-1]:
        return words[words.index("-m") + 1].startswith(("lexmill.stages.", "lexmill.cli"))
    return bool(words) and Path(words[0]).name == "lexmill"


if _is_command():
    from lexmill.base.surroundings import settle

    settle()
    # Ctrl-C while a command is still importing ends it without a traceback; then the command itself takes it up.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
