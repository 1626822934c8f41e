"""The load benchmark counts right and wrong answers, and measures what it says."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psutil
import pytest

from benchmarks import load


@contextmanager
def model(wrong_every: int) -> Iterator[int]:
    """A server that answers with the text in capitals, and wrongly now and then."""
    counted = iter(range(1, 10**9))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            (text,) = json.loads(self.rfile.read(int(self.headers["content-length"])))["inputs"]
            bad = not isinstance(text, str)
            place = next(counted)
            spoiled = place > 50 and wrong_every and place % wrong_every == 0
            answer = {"message": "no text"} if bad else {"predictions": ["" if spoiled else text.upper()]}
            body = json.dumps(answer).encode()
            self.send_response(400 if bad else 200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("wrong_every", [0, 2])
def test_wrong_answers_are_counted(wrong_every: int) -> None:
    with model(wrong_every) as port:
        found = load.drive(port, psutil.Process(os.getpid()), seconds=1.0, clients=3, params={})
    summary = found.summary()
    assert (summary["wrong"] > 0) == bool(wrong_every)
    assert summary["refused_as_they_should"] > 0
    assert summary["requests"] == len(found.seconds) + found.refused
    assert 0 < summary["p50_ms"] <= summary["p99_ms"]
    assert summary["requests_per_second"] == pytest.approx(summary["requests"] / found.elapsed)
    assert summary["memory_before_mib"] > 10
