"""The protocol of executors: map a function over many pieces, with the results in order.

The work on a piece is a top-level function with plain data (JSON) in and out; large things are files in a scratch
folder that both sides see. So one function serves this process, local processes and the workers of a cluster.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from lexmill.base.errors import (
    EXIT_BUG,
    EXIT_DONE,
    EXIT_USER,
    LexmillError,
    RetryableError,
    UserError,
    UserErrors,
    machine_error,
)

Plain = dict[str, Any]
"""What JSON can hold."""

Advance = Callable[[int], None]
"""Called with how much more of the input is done."""

Work = Callable[[Plain, Advance], Plain]
"""What is done with one piece: its description in, its result out."""

MOST_ERRORS = 20


class Executor(Protocol):
    """Does the work on pieces, somewhere.

    Attributes:
        piece_bytes: how much input a piece should have here.
        alone: whether there is one worker only, so that cutting is of no use.
    """

    piece_bytes: int
    alone: bool

    def map(self, work: Work, common: Plain, items: Sequence[Plain], advance: Advance) -> Iterator[Plain]:
        """Yield the results of `work` for each item (merged into `common`), in order.

        `common` names the folder in which workers leave files: `scratch`, an absolute path.

        Raises:
            UserErrors: the errors of all pieces, after the last.
            RetryableError: what may pass: a lost worker, a full disk.
        """
        ...


class Here:
    """Do the work in this process, piece by piece."""

    piece_bytes = 64 << 20
    alone = True

    def map(self, work: Work, common: Plain, items: Sequence[Plain], advance: Advance) -> Iterator[Plain]:
        """See `Executor.map`; `advance` is called during the work on a piece."""

        def outcomes() -> Iterator[Plain]:
            for item in items:
                try:
                    yield {"result": work({**common, **item}, advance), "advanced": 0}
                except UserError as error:
                    yield failed(error)

        return results(outcomes(), advance)


def no_advance(_count: int) -> None:
    """Ignore progress."""


def outcome_of(work: Work, piece: Plain) -> Plain:
    """Do the work; return `{"result", "advanced"}`, or on failure `{"code", "messages"}`, as plain data."""
    advanced = 0

    def count(more: int) -> None:
        nonlocal advanced
        advanced += more

    try:
        result = work(piece, count)
    except LexmillError as error:
        return failed(error)
    except OSError as error:
        known = machine_error(error)
        return failed(known) if known else {"code": EXIT_BUG, "messages": [traceback.format_exc().rstrip()]}
    except Exception:
        return {"code": EXIT_BUG, "messages": [traceback.format_exc().rstrip()]}
    return {"result": result, "advanced": advanced}


def failed(error: LexmillError) -> Plain:
    """Return the outcome of a piece whose work raised this."""
    return {"code": error.exit_code, "messages": error.errors if isinstance(error, UserErrors) else [str(error)]}


def results(outcomes: Iterable[Mapping[str, Any]], advance: Advance) -> Iterator[Plain]:
    """Yield the results of outcomes in order; after a user's error, collect those of the other pieces.

    Raises:
        UserErrors: the distinct errors of all pieces.
        RetryableError: what may pass.
        RuntimeError: a bug, with its traceback.
    """
    errors: dict[str, None] = {}
    for outcome in outcomes:
        code = outcome.get("code", EXIT_DONE)
        if code == EXIT_USER:
            errors.update(dict.fromkeys(outcome["messages"]))
        elif code == EXIT_BUG:
            raise RuntimeError("the work on a piece failed:\n" + "\n".join(outcome["messages"]))
        elif code != EXIT_DONE:
            raise RetryableError("\n".join(outcome["messages"]))
        elif not errors:
            advance(outcome["advanced"])
            yield outcome["result"]
    if errors:
        shown = list(errors)
        more = [f"and {len(shown) - MOST_ERRORS:,} more"] if len(shown) > MOST_ERRORS else []
        raise UserErrors([*shown[:MOST_ERRORS], *more])
