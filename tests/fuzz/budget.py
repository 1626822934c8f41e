"""What fuzz tests share: mutations of small valid files, and the one outcome that is allowed for any input.

A reader succeeds, or raises `UserError` or `RetryableError`, within a budget of time and memory.

`make test` runs a few examples, always the same ones; LEXMILL_FUZZ=N runs N new ones.
"""

from __future__ import annotations

import copy
import importlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from lexmill.base.errors import LexmillError, RetryableError, UserError, machine_error

LONG = int(os.environ.get("LEXMILL_FUZZ", "0"))
SECONDS = 5.0  # a few milliseconds are usual; a loaded machine may take a hundred times longer
MEGABYTES = 300
_CEILING = 12 << 30  # bytes of address space of a limited process, so that a failure does not take the machine

_INTERESTING = [
    *(n.to_bytes(size, "little") for size in (4, 8) for n in (0, 1, 2**31 - 1, 2**31, 2**32 - 1)),
    *(n.to_bytes(8, "little") for n in (2**40, 2**63 - 1, 2**64 - 1)),
    *(b"null", b"-1", b"1e999", b"99999999999999999999", b"[[[[[[", b'{"a":', b'"\\ud800"', b"\xff\xfe", b"\0", b"../"),
]


def fuzzed(examples: int) -> Any:
    """Settings of a fuzz test: `examples` fixed ones, or as many new ones as LEXMILL_FUZZ says."""
    return settings(
        phases=(Phase.explicit, Phase.generate),  # shrinking takes minutes, and a mutation is small already
        max_examples=LONG or examples,
        derandomize=not LONG,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


@st.composite
def mutated(draw: st.DrawFn, seeds: list[bytes]) -> bytes:
    """One of the seeds after one to four mutations: flip, cut, remove, insert, overwrite, splice; or random bytes."""
    if draw(st.integers(0, 19)) == 0:
        return draw(st.binary(max_size=200))
    data = bytearray(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(1, 4))):
        at, end = sorted((draw(st.integers(0, len(data))), draw(st.integers(0, len(data)))))
        kind = draw(st.sampled_from(["flip", "flip", "cut", "remove", "insert", "overwrite", "overwrite", "splice"]))
        if kind == "flip" and data:
            data[min(at, len(data) - 1)] ^= 1 << draw(st.integers(0, 7))
        elif kind == "cut":
            del data[at:]
        elif kind == "remove":
            del data[at : min(end, at + 64)]
        elif kind == "splice":
            data[at:at] = draw(st.sampled_from(seeds))[at:end][:256]
        else:
            piece = draw(st.sampled_from(_INTERESTING) | st.binary(min_size=1, max_size=8))
            data[at : at + (len(piece) if kind == "overwrite" else 0)] = piece
    return bytes(data)


# Values of JSON where another kind is expected.
HOSTILE: st.SearchStrategy[Any] = st.sampled_from(
    [
        *(None, True, -1, 0, 1, 10**9, 2**40, 2**63, 10**30, 1.5, -0.0, 1e308, float("inf"), float("nan")),
        *("", "x", "../x", "\x00", "é", "a" * 5000, "llama", "gelu"),
        *([], [1], [None, None], ["x", "x"], [[[[[]]]]], {}, {"a": []}, {"": None}),
    ]
)


@st.composite
def hostile_json(draw: st.DrawFn, value: Any) -> Any:
    """A copy of a JSON value in which one to three places hold another kind of value, or are missing."""
    value = json.loads(json.dumps(value))
    for _ in range(draw(st.integers(1, 3))):
        place, key, above = value, None, None
        while isinstance(place, dict | list) and place and (above is None or draw(st.booleans())):
            above = place
            key = draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
            place = above[key]
        if above is None:
            return copy.deepcopy(draw(HOSTILE))
        if draw(st.integers(0, 3)) == 0:
            del above[key]
        else:
            above[key] = copy.deepcopy(draw(HOSTILE))
    return value


def _peak() -> float:
    """The largest resident memory of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@contextmanager
def within(seconds: float = SECONDS, megabytes: float = MEGABYTES) -> Iterator[None]:
    """Hold the block to a budget of processor time and memory."""
    before, began = _peak(), time.process_time()
    yield
    took, grew = time.process_time() - began, _peak() - before
    assert took < seconds, f"took {took:.1f} s"
    assert grew < megabytes, f"took {grew:.0f} MiB"


def outcome(call: Callable[[], Any]) -> str:
    """Call a reader; return its error's message, "" for success. Any other exception, or a budget passed, fails."""
    with within():
        try:
            call()
            said = ""
        except (LexmillError, OSError) as raised:
            error = machine_error(raised) if isinstance(raised, OSError) else raised  # as a stage does
            if not isinstance(error, UserError | RetryableError):
                raise
            said = str(error)
            assert said, "an error without a message"
            said.encode("utf-8")
    return said


@contextmanager
def empty_folder() -> Iterator[Path]:
    """A new folder, for one example."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def limited(function: str, *arguments: str, megabytes: float = MEGABYTES, seconds: float = 240) -> str:
    """Call `module:function` with texts in a process of its own; return its error's message, "" for success.

    Fails where it takes more memory than `megabytes` above that of its imports, or raises another exception.
    """
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.budget", function, *arguments],
        capture_output=True,
        encoding="utf-8",
        timeout=seconds,
        check=False,
        cwd=Path(__file__).parent.parent.parent,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said, took = json.loads(done.stdout.splitlines()[-1])
    assert took < megabytes, f"took {took:.0f} MiB: {said}"
    return str(said)


def _main(function: str, *arguments: str) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_CEILING, _CEILING))
    module, _, name = function.partition(":")
    call = getattr(importlib.import_module(module), name)
    before = _peak()
    try:
        call(*arguments)
        said = ""
    except (UserError, RetryableError) as error:
        said = str(error)
    print(json.dumps([said, _peak() - before]))


if __name__ == "__main__":
    _main(*sys.argv[1:])
