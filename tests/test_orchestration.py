"""What bit those who put Prefect around DVC stages before us; each test here is one trap that was met."""

from __future__ import annotations

import ast
import graphlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import flows.__main__ as door
from lexmill.commands import servers

ROOT = Path(__file__).parent.parent
FLOWS = {path.name: ast.parse(path.read_text(encoding="utf-8")) for path in sorted((ROOT / "flows").glob("*.py"))}
FLOW = re.compile(r"^ *from flows(?:\.| import )(\w+)", re.MULTILINE)
# What cannot be pickled: the state of threads, files and processes.
ALIVE = {"Lock", "RLock", "Event", "Condition", "Semaphore", "Queue", "SimpleQueue", "Thread", "local", "open", "Popen"}


def name_of(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def test_no_module_of_the_flows_needs_one_that_needs_it() -> None:
    """Late imports count too; `shards` started as a program imports itself."""
    sources = {name: (ROOT / "flows" / name).read_text(encoding="utf-8") for name in FLOWS}
    needs = {name: {f"{other}.py" for other in FLOW.findall(text)} - {name} for name, text in sources.items()}
    assert needs["__main__.py"] >= {"pipeline.py", "serving.py", "server.py"}
    graphlib.TopologicalSorter(needs).prepare()  # raises CycleError


def calls(tree: ast.AST) -> list[ast.Call]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def options(call: ast.Call, tree: ast.AST) -> dict[str, str]:
    """What a call is given by keyword, also by a dictionary that is written out in the same file."""
    given = {word.arg: ast.unparse(word.value) for word in call.keywords if word.arg}
    stars = {ast.unparse(word.value) for word in call.keywords if word.arg is None}
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) in stars and isinstance(node.value, ast.Dict):
            pairs = zip(node.value.keys, node.value.values, strict=True)
            given |= {ast.literal_eval(key): ast.unparse(value) for key, value in pairs if key is not None}
    return given


def test_no_global_of_a_flows_module_is_alive() -> None:
    """`serve` and workers pickle the flow, and with it the globals that it refers to."""

    def found(tree: ast.Module) -> list[str]:
        statements = [node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)]
        return [name_of(call) for node in statements for call in calls(node) if name_of(call) in ALIVE]

    assert {name: found(tree) for name, tree in FLOWS.items() if found(tree)} == {}
    assert found(ast.parse("import threading\n_lock: threading.Lock = threading.Lock()")) == ["Lock"]


def test_prefect_ends_no_work_and_keeps_none() -> None:
    """Its timeout fires late for work that waits in a thread, and leaves the process: deadlines are the stages' own.

    And DVC is the cache: a result that Prefect kept would be served after its inputs have changed.
    """
    seen: list[str] = []
    for name, tree in FLOWS.items():
        for call in calls(tree):
            if name_of(call) in ("flow", "task", "Task"):
                words = options(call, tree)
                seen.append(name)
                assert words.get("persist_result") == "False", f"{name}:{call.lineno}"
                assert not words.keys() & {"timeout_seconds", "cache_key_fn", "result_storage"}, f"{name}:{call.lineno}"
                assert name_of(call) == "flow" or words.get("cache_policy") == "NO_CACHE", f"{name}:{call.lineno}"
    assert {"pipeline.py", "shards.py", "stage.py"} <= set(seen)


def test_no_flow_runs_on_prefects_own_temporary_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is given 20 seconds, takes 10 to 17 on a quiet machine, and nobody could look at the run afterwards."""

    class Started:
        url = "http://127.0.0.1:9"
        waited = False

        def wait(self) -> None:
            self.waited = True

    server = Started()

    @contextmanager
    def ours(_root: Path) -> Iterator[Started]:
        yield server

    def never(_root: Path) -> Any:
        raise AssertionError("a second server on one database")

    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    monkeypatch.setattr(servers, "serving_prefect", ours)
    with door.prefect_server(tmp_path) as wait:
        wait()
        assert (os.environ["PREFECT_API_URL"], server.waited) == ("http://127.0.0.1:9/api", True)
    assert "PREFECT_API_URL" not in os.environ

    monkeypatch.setattr(servers, "running_prefect", lambda _root: "http://127.0.0.1:8")
    monkeypatch.setattr(servers, "serving_prefect", never)
    with door.prefect_server(tmp_path) as wait:
        wait()
        assert os.environ["PREFECT_API_URL"] == "http://127.0.0.1:8/api"
