"""Executors give the results of all pieces in order, the errors of all of them, and leave nothing behind."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from lexmill.base.code import Code
from lexmill.base.errors import RetryableError, UserErrors
from lexmill.compute.workers import identity
from lexmill.compute.workers.executor import MOST_ERRORS, Here
from lexmill.compute.workers.processes import Processes
from tests.compute.workers import made_work
from tests.support.waiting import wait_for

SOURCE = Path(__file__).parents[3] / "pipeline"

ITEMS = [{"x": x} for x in range(1, 21)]


@contextmanager
def executor(name: str) -> Iterator[Any]:
    if name == "here":
        yield Here()
    else:
        with Processes(2) as pool:
            yield pool


@pytest.mark.parametrize("name", ["here", "processes"])
def test_results_come_in_order_and_progress_adds_up(tmp_path: Path, name: str) -> None:
    done: list[int] = []
    with executor(name) as workers:
        found = list(workers.map(made_work.square, {"scratch": str(tmp_path)}, ITEMS, done.append))
        assert list(workers.map(made_work.square, {"scratch": str(tmp_path)}, [], done.append)) == []
    assert found == [{"square": item["x"] ** 2} for item in ITEMS]
    assert sum(done) == sum(item["x"] for item in ITEMS)
    worked = {int(path.name.removeprefix("pid-")) for path in tmp_path.iterdir()}
    assert (os.getpid() in worked) == (name == "here")


@pytest.mark.parametrize("name", ["here", "processes"])
def test_the_errors_of_all_pieces_are_reported_at_once_in_order(name: str) -> None:
    items = [{"x": x} for x in (2, 3, 7, 4, 3, 9)]
    with executor(name) as workers, pytest.raises(UserErrors) as caught:
        list(workers.map(made_work.faulty, {}, items, lambda _: None))
    assert caught.value.errors == ["a.txt:3: odd", "a.txt:7: one thing", "a.txt:7: another", "a.txt:9: odd"]


def test_errors_without_end_are_counted() -> None:
    with pytest.raises(UserErrors) as caught:
        list(Here().map(made_work.faulty, {}, [{"x": 2 * x + 1} for x in range(200)], lambda _: None))
    assert len(caught.value.errors) == MOST_ERRORS + 1
    assert caught.value.errors[-1].startswith("and 2")


def test_a_bug_on_a_worker_shows_where_it_happened() -> None:
    with executor("processes") as workers, pytest.raises(RuntimeError, match=r"(?s)made_work.py.*ZeroDivisionError"):
        list(workers.map(made_work.buggy, {}, [{"x": 0}], lambda _: None))


def test_a_killed_worker_is_reported_and_worth_another_try(tmp_path: Path) -> None:
    with executor("processes") as workers, pytest.raises(RetryableError, match="ended from outside"):
        list(workers.map(made_work.killed, {"scratch": str(tmp_path)}, ITEMS, lambda _: None))


def worker_processes(folder: Path, count: int) -> list[psutil.Process]:
    found = wait_for(lambda: len(found := list(folder.glob("pid-*"))) >= count and found)
    return [psutil.Process(int(path.name.removeprefix("pid-"))) for path in found]


ORPHANS = """
import sys
from lexmill.compute.workers.processes import Processes
from tests.compute.workers import made_work

if __name__ == "__main__":
    with Processes(2) as pool:
        items = [{"x": 1, "seconds": 600}] * 3
        list(pool.map(made_work.slow, {"scratch": sys.argv[1]}, items, lambda _: None))
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_workers_end_when_the_stage_gives_up_or_is_killed(tmp_path: Path, how: signal.Signals) -> None:
    script, scratch = tmp_path / "orphans.py", tmp_path / "scratch"
    script.write_text(ORPHANS)
    scratch.mkdir()
    root = str(Path(__file__).parents[3])
    parent = subprocess.Popen([sys.executable, str(script), str(scratch)], env={**os.environ, "PYTHONPATH": root})
    try:
        workers = worker_processes(scratch, 2)
    finally:
        parent.send_signal(how)
        ended = parent.wait(60)
    assert ended != 0
    assert not psutil.wait_procs(workers, timeout=30)[1]


# ---------------------------------------------------------------- is a worker fit


def test_a_worker_with_the_same_folder_code_and_libraries_is_fit(tmp_path: Path) -> None:
    identity.check(identity.identity(tmp_path))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"word": "another"}, "does not see"),
        ({"folder": "/nowhere"}, "does not see /nowhere; the project's folder must lie on storage that all machines"),
        ({"code": "0" * 64}, "has other code of lexmill (in "),
        ({"versions": {"numpy": "0.1", "python": "2.7"}}, "not 0.1; python 3."),
    ],
)
def test_one_that_differs_is_not(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    with pytest.raises(identity.UserError) as caught:
        identity.check({**identity.identity(tmp_path), **change})
    assert said in str(caught.value)
    assert str(caught.value).startswith("the worker on ")


def test_the_code_that_is_compared_is_all_that_a_piece_can_run() -> None:
    """The functions that stages give to an executor are in modules of `WORK`, and nothing is exempt."""
    given = set()
    for path in (SOURCE / "lexmill").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "executor.map":
                name = ast.unparse(node.args[0]).rpartition(".")[2]
                given |= {one for one in identity.WORK if f"def {name}(" in source_of(one)} or {f"{path}: {name}"}
    assert given == set(identity.WORK) - {"lexmill.compute.workers.remote"}
    files = Code().closure(*identity.WORK, exempt=()).files
    assert {"lexmill/base/storage.py", "lexmill/params/corpora.py", "lexmill/data/encoding.py"} <= files.keys()


def source_of(module: str) -> str:
    return (SOURCE / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
