"""Registered models over HTTP: by MLflow's own server, and by `lexmill serve`."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import mlflow
import psutil
import pytest
import yaml
from starlette.testclient import TestClient

from lexmill.base.errors import UserError
from lexmill.registry import gate, served, serving
from lexmill.tracking import store

from .plain import plain_params

NAMES = ("gpt", "tickets", "en_de")
# A text each that a language model does not have to write for long.
PARAMS = {"gpt": {"max_tokens": 6, "seed": 3}, "tickets": {}, "en_de": {"beam_size": 2}}
JSON = "application/json"


def body(name: str, **fields: Any) -> str:
    return json.dumps({**fields, **({"params": PARAMS[name]} if PARAMS[name] else {})})


@pytest.fixture(scope="module")
def clients(published: tuple[Path, list[str]]) -> Iterator[dict[str, TestClient]]:
    """MLflow's scoring application behind our gate, for each kind of model."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("_MLFLOW_IS_IN_SERVING_ENVIRONMENT", "true")
        patch.setenv("MLFLOW_SCORING_SERVER_REQUEST_TIMEOUT", "600")
        mlflow.set_tracking_uri(store.absolute_uri("sqlite:///mlflow.db", published[0]))
        apps = {name: serving.application(mlflow.pyfunc.load_model(f"models:/{name}@champion")) for name in NAMES}
        yield {name: TestClient(app, raise_server_exceptions=False) for name, app in apps.items()}
        mlflow.set_tracking_uri(None)  # type: ignore[arg-type]  # not set, as before


def post(client: TestClient, content: str | bytes, kind: str | None = JSON) -> tuple[int, Any]:
    answer = client.post("/invocations", content=content, headers={"content-type": kind} if kind else {})
    return answer.status_code, answer.json() if answer.headers["content-type"] == JSON else answer.text


@pytest.mark.parametrize("name", NAMES)
def test_every_format_gives_the_same_answers(name: str, clients: dict[str, TestClient]) -> None:
    texts = ["Good day", "my bill"]
    code, answer = post(clients[name], body(name, inputs=texts))
    assert code == 200, answer
    expected = answer["predictions"]
    assert len(expected) == 2
    for fields in (
        {"instances": texts},
        {"instances": [{"text": text} for text in texts]},
        {"dataframe_split": {"columns": ["text"], "data": [[text] for text in texts]}},
        {"dataframe_split": {"data": [[text] for text in texts]}},
        {"dataframe_records": [{"text": text} for text in texts]},
    ):
        assert post(clients[name], body(name, **fields)) == (200, {"predictions": expected}), fields
    single = [post(clients[name], body(name, inputs=[text]))[1]["predictions"][0] for text in texts]
    if name == "tickets":
        assert [one["label"] for one in single] == [one["label"] for one in expected]
        assert single[0]["scores"] == pytest.approx(expected[0]["scores"], rel=1e-5)
    else:
        assert single == expected
    assert post(clients[name], body(name, inputs="Good day"))[1]["predictions"] == single[:1]
    code, answer = post(clients[name], "text\nGood day\nmy bill\n", "text/csv")
    assert (code, len(answer["predictions"])) == (200, 2)
    if name != "gpt":  # CSV carries no params
        assert answer["predictions"] == expected


def test_whether_it_lives_is_one_request(clients: dict[str, TestClient]) -> None:
    assert {client.get("/health").status_code for client in clients.values()} == {200}


def test_params_reach_the_model(clients: dict[str, TestClient]) -> None:
    def write(**params: Any) -> Any:
        code, answer = post(clients["gpt"], json.dumps({"inputs": ["ROMEO"], "params": params}))
        assert code == 200, answer
        return answer["predictions"]

    whole = write(max_tokens=12, seed=5, temperature=1.5)
    assert write(max_tokens=12, seed=5, temperature=1.5) == whole != write(max_tokens=12, seed=6, temperature=1.5)
    assert write(max_tokens=0) == [""]
    assert write(max_tokens=12, seed=5, temperature=1.5, stop=[whole[0][1]]) == [
        whole[0][: whole[0].index(whole[0][1])]
    ]


BAD = [
    ({"dataframe_split": {"columns": ["a", "b"], "data": [["x", "y"]]}}, "has 2 columns; it must have one"),
    ({"dataframe_records": [{"text": "a", "n": "b"}]}, "has 2 columns; it must have one"),
    ({"instances": [{"text": "a", "n": "b"}]}, "has 2 fields"),
    ({"inputs": [["a", "b"]]}, "has 2 columns"),
    ({"inputs": [3]}, "input 0 is no text but int: 3"),
    ({"inputs": ["fine", None]}, "input 1 is no text but NoneType"),
    ({"inputs": None}, "is no text"),
    ({"inputs": []}, "there is no text in the request"),
    ({"messages": [{"role": "user", "content": "hello"}]}, "is no text but dict"),
    ({"inputs": ["\ud800"]}, "not Unicode"),
    ({"inputs": ["x" * 2_000_000]}, "a text of 2,000,000 characters; send at most 1,000,000"),
    ({"inputs": ["x"] * 10_001}, "10,001 texts in one request"),
    ({}, "must be a JSON dictionary with exactly one of the input fields"),
    (
        {"inputs": ["a"], "params": {"temprature": 1}},
        {"gpt": "did you mean 'temperature'", "tickets": "takes no params"},
    ),
    ({"inputs": ["a"], "params": [1]}, {"gpt": "must be a dictionary", "tickets": "takes no params"}),
]


@pytest.mark.parametrize("name", ["gpt", "tickets"])
@pytest.mark.parametrize(("fields", "message"), BAD, ids=[str(fields)[:40] for fields, _ in BAD])
def test_a_bad_request_learns_what_is_wrong(
    name: str, fields: dict[str, Any], message: str | dict[str, str], clients: dict[str, TestClient]
) -> None:
    code, answer = post(clients[name], json.dumps(fields))
    assert code == 400, answer
    assert (message if isinstance(message, str) else message[name]) in answer["message"]
    assert len(answer["message"]) < 1000


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("gpt", {"max_tokens": 10**6}, "max_tokens: 1,000,000 is too large for a server"),
        ("gpt", {"max_tokens": -1, "top_p": 0.0}, "max_tokens: -1 is too small"),
        ("gpt", {"max_tokens": "many"}, "max_tokens"),
        ("gpt", {"stop": "x"}, "stop"),
        ("gpt", {"stop": [""]}, "stop: an empty text"),
        ("en_de", {"beam_size": 0}, "beam_size: 0 is too small"),
        ("en_de", {"beam_size": 1.5}, "beam_size"),
        ("en_de", {"beam_size": 65}, "beam_size: 65 is too large for a server; at most 64"),
        ("en_de", {"max_tokens": 5}, "max_tokens: no such param; known: beam_size, coverage_penalty, length_penalty"),
        ("en_de", {"ranking": "median"}, "ranking"),
        ("en_de", {"temperature": -1.0}, "temperature: -1.0 is too small"),
    ],
)
def test_a_param_out_of_bounds_is_reported(
    name: str, params: Any, message: str, clients: dict[str, TestClient]
) -> None:
    code, answer = post(clients[name], json.dumps({"inputs": ["a"], "params": params}))
    assert code == 400
    assert message in answer["message"]


@pytest.mark.parametrize(
    ("content", "kind", "code", "message"),
    [
        ("{", JSON, 400, "valid JSON"),
        ('{"inputs": ["a"], "params": {"seed": 1' + "0" * 10_000 + "}}", JSON, 400, "a number of 10,001 digits"),
        (b"\xff\xfe", JSON, 400, "valid JSON"),
        ("[" * 100_000, JSON, 400, "nested too deeply"),
        ('{"inputs": ["a"]}', None, 415, "no content type"),
        ("<a/>", "text/xml", 415, "content types"),
        ("", "text/csv", 400, "CSV"),
        ("text\n", "text/csv", 400, "no text in the request"),
        ("a,b\nx,y\n", "text/csv", 400, "has 2 columns"),
        (b"text\n\xff\n", "text/csv", 400, "UTF-8"),
        ("x" * (gate.MOST_BYTES + 1), JSON, 413, "at most 16 MB"),
    ],
    ids=lambda value: str(value)[:12],
)
def test_what_is_no_request_is_refused(
    content: str | bytes, kind: str | None, code: int, message: str, clients: dict[str, TestClient]
) -> None:
    given, answer = post(clients["tickets"], content, kind)
    assert given == code, answer
    assert message in (answer if isinstance(answer, str) else answer["message"])


def test_a_body_that_hides_its_size_is_cut(clients: dict[str, TestClient]) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(gate.MOST_BYTES // 1_000_000 + 1):
            yield b"x" * 1_000_000

    answer = clients["tickets"].post("/invocations", content=chunks(), headers={"content-type": JSON})
    assert answer.status_code == 413


def test_a_misspelt_param_is_an_error_in_python_too(
    published: tuple[Path, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("_MLFLOW_IS_IN_SERVING_ENVIRONMENT", raising=False)
    mlflow.set_tracking_uri(store.absolute_uri("sqlite:///mlflow.db", published[0]))
    try:
        model = mlflow.pyfunc.load_model("models:/en_de@champion")
        with pytest.raises(mlflow.MlflowException, match="beam: no such param, did you mean 'beam_size'"):
            model.predict(["a"], params={"beam": 2})
        assert model.predict([]) == []
        assert model.predict(["a"], params={"beam_size": 1})
    finally:
        mlflow.set_tracking_uri(None)  # type: ignore[arg-type]


def test_other_models_params_are_left_to_mlflow_but_for_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    import logging

    monkeypatch.setattr(served, "_serving", lambda: False)
    served._refuse_unknown_params({"beam_size": 2})
    text = "Unrecognized params ['x'] are ignored for inference. Supported params are: {'another'}. To enable them"
    record = logging.LogRecord("mlflow.models.utils", logging.WARNING, "", 0, text, (), None)
    assert served._no_unknown_params(record)
    monkeypatch.setattr(served, "_serving", lambda: True)
    with pytest.raises(Exception, match="x: no such param"):
        served._no_unknown_params(record)


def test_an_address_that_is_taken_is_reported() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(UserError, match=rf"cannot listen on 127\.0\.0\.1:{port} \(Address already in use\)"):
            serving.listening("127.0.0.1", port)


def _call(address: str, content: str, kind: str = JSON) -> tuple[int, Any]:
    request = urllib.request.Request(address, content.encode(), {"content-type": kind})
    try:
        with urllib.request.urlopen(request, timeout=300) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def _end(process: subprocess.Popen[Any]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _hold_to_single_answers(address: str, name: str) -> None:
    """200 requests at once: each gets what it gets alone; the bad ones among them their sentence."""
    texts = [f"day {i % 10} " * (1 + i % 7) for i in range(70)]
    alone = {text: _call(address, body(name, inputs=[text])) for text in texts}
    assert all(code == 200 for code, _ in alone.values())
    with ThreadPoolExecutor(200) as pool:
        found = [(i, pool.submit(_call, address, body(name, inputs=[texts[i % 70]]))) for i in range(190)]
        bad = [pool.submit(_call, address, body(name, inputs=[i])) for i in range(10)]
        for i, one in found:
            assert one.result() == alone[texts[i % 70]]
        assert {one.result()[0] for one in bad} == {400}


def _hold_to_every_form(address: str, name: str) -> None:
    """Several texts as JSON in two forms and as CSV, with params and without; a misspelt param."""
    texts = ["Good day", "my bill"]
    params = PARAMS[name] | ({"temperature": 0.7} if name == "gpt" else {})
    given = {"params": params} if params else {}
    code, batch = _call(address, json.dumps({"inputs": texts, **given}))
    assert (code, len(batch["predictions"])) == (200, 2), batch
    table = {"columns": ["text"], "data": [[text] for text in texts]}
    assert _call(address, json.dumps({"dataframe_split": table, **given})) == (200, batch)
    plain = _call(address, json.dumps({"inputs": texts}))
    code, table = _call(address, "text\nGood day\nmy bill\n", "text/csv")
    assert (code, len(table["predictions"])) == (200, 2), table
    if name != "gpt":  # without a seed it writes something else each time
        assert (code, table) == plain
    code, answer = _call(address, json.dumps({"inputs": ["a"], "params": {"temprature": 1}}))
    assert code == 400, answer


@pytest.mark.e2e
@pytest.mark.parametrize("name", NAMES)
def test_mlflows_own_server_answers_200_at_once_as_one_by_one(name: str, published: tuple[Path, list[str]]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "models", "serve", "-m", f"models:/{name}@champion"]
    command += ["--env-manager", "local", "--port", str(port), "--timeout", "600"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    uri = store.absolute_uri("sqlite:///mlflow.db", published[0])
    environment = {**os.environ, "PATH": path, "MLFLOW_TRACKING_URI": uri, "MLFLOW_DISABLE_TELEMETRY": "true"}
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        _wait_for(process, port)
        _hold_to_every_form(f"http://127.0.0.1:{port}/invocations", name)
        _hold_to_single_answers(f"http://127.0.0.1:{port}/invocations", name)
    finally:
        _end(process)


def _wait_for(process: subprocess.Popen[Any], port: int) -> None:
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        assert process.poll() is None, process.stderr and process.stderr.read().decode()[-2000:]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    raise AssertionError("the server does not answer")


@pytest.mark.e2e
def test_lexmill_serve_is_one_process_that_ends_when_asked(published: tuple[Path, list[str]], tmp_path: Path) -> None:
    where = tmp_path / "copy"
    shutil.copytree(published[0], where)
    (where / "params.yaml").write_text(yaml.safe_dump(plain_params()))
    (where / "conf/execution").mkdir(parents=True)
    (where / "conf/execution/local.yaml").write_text("tracking_uri: sqlite:///mlflow.db\nthreads: 1\n")
    command = [sys.executable, "-m", "lexmill.cli", "serve"]
    nobody = subprocess.run([*command, "nobody"], cwd=where, capture_output=True, text=True, check=False)
    assert nobody.returncode == 2
    assert "\nthe registry has no model 'nobody'" in f"\n{nobody.stderr}"  # the copied store is said to have moved
    process = subprocess.Popen(
        [*command, "tickets", "--port", "0"], cwd=where, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert process.stdout is not None
        said = re.fullmatch(
            r"tickets, version 1: (http://127\.0\.0\.1:\d+/invocations) \(Ctrl-C ends it\)\n", process.stdout.readline()
        )
        assert said is not None
        assert _call(said[1], body("tickets", inputs=["my bill"]))[0] == 200
        assert _call(said[1], "[" * 100_000)[0] == 400
        assert psutil.Process(process.pid).children(recursive=True) == []
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    finally:
        _end(process)
