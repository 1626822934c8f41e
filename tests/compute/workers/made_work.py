"""Things to do with a piece, for the tests: at the top of a module, as workers need them."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from lexmill.base.errors import RetryableError, UserError, UserErrors
from lexmill.compute.workers.executor import Advance, Plain


def square(piece: Plain, advance: Advance) -> Plain:
    """Leaves its process id in the scratch folder."""
    (Path(piece["scratch"]) / f"pid-{os.getpid()}").touch()
    advance(piece["x"])
    return {"square": piece["x"] ** 2}


def slow(piece: Plain, advance: Advance) -> Plain:
    (Path(piece["scratch"]) / f"pid-{os.getpid()}").touch()
    time.sleep(piece["seconds"])
    return square(piece, advance)


def faulty(piece: Plain, _advance: Advance) -> Plain:
    """Odd numbers are wrong, and every seventh twice."""
    x = piece["x"]
    if x % 7 == 0:
        raise UserErrors([UserError("one thing", "a.txt", x), UserError("another", "a.txt", x)])
    if x % 2:
        raise UserError("odd", "a.txt", x)
    return {"x": x}


def buggy(piece: Plain, _advance: Advance) -> Plain:
    return {"x": 1 // piece["x"]}


def once_busy(piece: Plain, advance: Advance) -> Plain:
    """The first try of a piece fails for something that passes."""
    mark = Path(piece["scratch"]) / f"tried-{piece['x']}"
    if not mark.exists():
        mark.touch()
        raise RetryableError("the disk was busy")
    return square(piece, advance)


def killed(piece: Plain, advance: Advance) -> Plain:
    """The first try of piece 3 is killed with its worker, after a half of its work was written."""
    mark = Path(piece["scratch"]) / "killed"
    if piece["x"] == 3 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return square(piece, advance)
