"""Which failures of the machine are reported as sentences, and how."""

from __future__ import annotations

import errno
import os

import pytest

from lexmill.base.errors import EXIT_RETRY, EXIT_USER, machine_error


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [
        (errno.ENOSPC, EXIT_RETRY, "the disk is full (writing a/b)"),
        (errno.EDQUOT, EXIT_RETRY, "the disk is full (writing a/b)"),
        (errno.EIO, EXIT_RETRY, "the disk does not answer (at a/b)"),
        (errno.EFBIG, EXIT_USER, "a file would grow larger than is allowed here (a/b); raise `ulimit -f`"),
        (errno.EACCES, EXIT_USER, "a/b: cannot be read or written: Permission denied"),
        (errno.EROFS, EXIT_USER, "a/b: cannot be read or written: Read-only file system"),
        (errno.EISDIR, EXIT_USER, "a/b: cannot be read or written: Is a directory"),
    ],
)
def test_an_error_of_the_machine_has_its_code_and_names_the_file(number: int, code: int, said: str) -> None:
    error = machine_error(OSError(number, os.strerror(number), "a/b"))
    assert error is not None
    assert error.exit_code == code
    assert str(error).startswith(said)


def test_of_two_files_the_one_that_was_to_be_written_is_named() -> None:
    error = machine_error(OSError(errno.EISDIR, "Is a directory", ".x.1.tmp", None, "x"))
    assert str(error).startswith("x: ")


def test_what_may_be_our_bug_stays_one() -> None:
    assert machine_error(OSError(errno.EACCES, "Permission denied")) is None
    assert machine_error(FileNotFoundError(errno.ENOENT, "No such file", "a/b")) is None
    assert machine_error(OSError("something")) is None
