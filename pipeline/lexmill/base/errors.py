"""Errors for users, and the exit codes that distinguish them.

A `UserError` is the user's to fix and is shown as sentences, never as a traceback; any other exception is
our bug and keeps its traceback. Exit codes: 0 done; 1 a bug; 2 the input or the params are wrong; 75 worth
trying again (EX_TEMPFAIL of sysexits.h); 130 interrupted (128 + SIGINT); 143 terminated (128 + SIGTERM).
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

from lexmill.base.cutting import cut_middle
from lexmill.base.shown import without_secrets

_MOST_CHARACTERS = 4000  # of one error, whatever it quotes
_MOST_ERRORS = 200  # printed at once

EXIT_DONE = 0
EXIT_BUG = 1
EXIT_USER = 2
EXIT_RETRY = 75
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143


class LexmillError(Exception):
    """A failure with its own exit code, reported in one sentence, which quotes no secret of an address."""

    exit_code = EXIT_BUG

    def __init__(self, message: str = "") -> None:
        super().__init__(without_secrets(message))


class UserError(LexmillError):
    """Wrong input or wrong params: one clear sentence with file, line and what to do.

    Args:
        message: what is wrong and what to do next, one sentence or two.
        file: the wrong file, if there is one.
        line: its line, counted from 1.
    """

    exit_code = EXIT_USER

    def __init__(self, message: str, file: str | Path | None = None, line: int | None = None) -> None:
        self.message, self.file, self.line = without_secrets(message), file, line
        place = "" if file is None else f"{file}:{line}: " if line is not None else f"{file}: "
        super().__init__(_cut(place + message))


class UserErrors(UserError):
    """Several errors, reported together so that they can be fixed together."""

    def __init__(self, errors: Sequence[str | UserError]) -> None:
        self.errors = [_cut(without_secrets(str(error))) for error in errors]
        more = len(self.errors) - _MOST_ERRORS
        shown = [*self.errors[:_MOST_ERRORS], *([f"and {more:,} more errors"] if more > 0 else [])]
        LexmillError.__init__(self, "\n".join(shown))
        self.message, self.file, self.line = str(self), None, None


def _cut(message: str) -> str:
    """Return a message without its middle where it is too long."""
    return cut_middle(message, _MOST_CHARACTERS, " ... ")


class RetryableError(LexmillError):
    """An outside error that may pass: no network, a busy server, a lock held by another run."""

    exit_code = EXIT_RETRY


def machine_error(error: OSError) -> LexmillError | None:
    """Return the machine error behind an `OSError` (disk full, no access ...); None where it may be our bug."""
    file = error.filename2 or error.filename
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return RetryableError(f"the disk is full{f' (writing {file})' if file else ''}; make room and run again")
    if error.errno in (errno.EIO, errno.ESTALE):
        place = f" (at {file})" if file else ""
        return RetryableError(f"the disk does not answer{place}: {error.strerror}; run again when it does")
    if error.errno == errno.EFBIG:
        named = f" ({file})" if file else ""
        return UserError(f"a file would grow larger than is allowed here{named}; raise `ulimit -f` or write elsewhere")
    if error.errno in _OUT_OF_REACH and file:
        return UserError(f"cannot be read or written: {error.strerror}; check the path and its permissions", str(file))
    return None


_OUT_OF_REACH = (
    *(errno.EACCES, errno.EPERM, errno.EROFS),
    *(errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG),
)


class Interrupted(LexmillError):
    """Stopped by Ctrl-C (SIGINT) before the work was done."""

    exit_code = EXIT_INTERRUPTED


class Terminated(LexmillError):
    """Stopped by SIGTERM before the work was done."""

    exit_code = EXIT_TERMINATED


class SignalledToEnd(BaseException):
    """SIGTERM, raised in the main thread; a BaseException, so that no `except Exception` catches it."""

    exit_code = EXIT_TERMINATED
