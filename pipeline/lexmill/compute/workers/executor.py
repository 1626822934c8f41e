"""What a data stage asks for: a function over many pieces, the results in order.

A piece's work is a function at the top of a module, and all that goes in and out of it is plain data (JSON); large
things are files in a scratch folder that both sides see. So one function serves this process, the processes beside it
and the workers of a cluster, and a result depends on the piece alone.
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
    machine_fault,
)

Plain = dict[str, Any]
"""What JSON can hold."""

Advance = Callable[[int], None]
"""Told how much more of the input is done."""

Work = Callable[[Plain, Advance], Plain]
"""What is done with one piece: its description in, its result out."""

MOST_FAULTS = 20


class Executor(Protocol):
    """Does the work on pieces, somewhere.

    Attributes:
        piece_bytes: how much input a piece should have here.
        alone: whether there is one worker only, for whom it is of no use to cut what is large.
    """

    piece_bytes: int
    alone: bool

    def map(self, work: Work, common: Plain, items: Sequence[Plain], advance: Advance) -> Iterator[Plain]:
        """The results of `work` for each item (joined with what is common to all), in their order.

        `common` names the folder in which workers leave files: `scratch`, an absolute path.

        Raises:
            UserErrors: the faults of all pieces, once the last is done.
            RetryableError: what may pass: a lost worker, a full disk.
        """
        ...


class Here:
    """Does the work in this process, one piece after the other."""

    piece_bytes = 64 << 20
    alone = True

    def map(self, work: Work, common: Plain, items: Sequence[Plain], advance: Advance) -> Iterator[Plain]:
        """See `Executor.map`; `advance` is told while a piece is worked on."""

        def outcomes() -> Iterator[Plain]:
            for item in items:
                try:
                    yield {"result": work({**common, **item}, advance), "advanced": 0}
                except UserError as error:
                    yield failed(error)

        return results(outcomes(), advance)


def no_advance(_count: int) -> None:
    """Tells nobody."""


def outcome_of(work: Work, piece: Plain) -> Plain:
    """Do the work; `{"result", "advanced"}` when it went well, else `{"code", "told"}`, as plain data."""
    advanced = 0

    def count(more: int) -> None:
        nonlocal advanced
        advanced += more

    try:
        result = work(piece, count)
    except LexmillError as error:
        return failed(error)
    except OSError as error:
        fault = machine_fault(error)
        return failed(fault) if fault else {"code": EXIT_BUG, "told": [traceback.format_exc().rstrip()]}
    except Exception:
        return {"code": EXIT_BUG, "told": [traceback.format_exc().rstrip()]}
    return {"result": result, "advanced": advanced}


def failed(error: LexmillError) -> Plain:
    """The outcome of a piece whose work raised this."""
    return {"code": error.exit_code, "told": error.faults if isinstance(error, UserErrors) else [str(error)]}


def results(outcomes: Iterable[Mapping[str, Any]], advance: Advance) -> Iterator[Plain]:
    """The results of outcomes in order; after a user's fault the other pieces are still heard.

    Raises:
        UserErrors: what the user has to mend, of all pieces, each thing once.
        RetryableError: what may pass.
        RuntimeError: a bug, with the traceback of where it happened.
    """
    faults: dict[str, None] = {}
    for outcome in outcomes:
        code = outcome.get("code", EXIT_DONE)
        if code == EXIT_USER:
            faults.update(dict.fromkeys(outcome["told"]))
        elif code == EXIT_BUG:
            raise RuntimeError("the work on a piece failed:\n" + "\n".join(outcome["told"]))
        elif code != EXIT_DONE:
            raise RetryableError("\n".join(outcome["told"]))
        elif not faults:
            advance(outcome["advanced"])
            yield outcome["result"]
    if faults:
        shown = list(faults)
        more = [f"and {len(shown) - MOST_FAULTS:,} more"] if len(shown) > MOST_FAULTS else []
        raise UserErrors([*shown[:MOST_FAULTS], *more])
