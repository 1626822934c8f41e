"""MLflow's tracking server on a free port of loopback, which fails as a file says; a script, not a test.

    python failing_server.py FOLDER     prints its port; FOLDER/mode holds one word, read at each request

`ok`; `500`, `401`: refuse; `lose`: do what was asked, then answer 500; `hang`: do it, and never answer. With a number,
`lose@3`, the third request from then on alone. `chaos@7`: a third of all requests end in one of those ways, drawn with
seed 7. /health answers always, as a server does whose store is gone.
"""

from __future__ import annotations

import os
import random
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


class Failures:
    """How each request is to end, by what the file says."""

    def __init__(self, mode: Callable[[], str]) -> None:
        self._mode, self._seen, self._count, self._draw = mode, "", 0, random.Random()
        self._lock = threading.Lock()

    def next(self) -> str:
        with self._lock:
            mode = self._mode()
            how, _, number = mode.partition("@")
            if mode != self._seen:
                self._seen, self._count, self._draw = mode, 0, random.Random(number)
            self._count += 1
            if how == "chaos":
                return self._draw.choice(["ok"] * 6 + ["500", "401", "lose"])
            return how if not number or self._count == int(number) else "ok"


def failing(app: Any, mode: Callable[[], str]) -> Any:
    """The application with its failures."""
    failures = Failures(mode)

    def answer(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        how = "ok" if environ["PATH_INFO"] == "/health" else failures.next()
        if how in ("500", "401"):
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            return _refuse(start, how)
        if how == "ok":
            return list(app(environ, start))
        done = list(app(environ, lambda *_: lambda _: None))
        assert done
        if how == "hang":
            threading.Event().wait()
        return _refuse(start, "500")

    return answer


def _refuse(start: Any, code: str) -> list[bytes]:
    start(f"{code} No", [("Content-Type", "text/plain")])
    return [b"no"]


def main(folder: Path) -> None:
    os.environ["_MLFLOW_SERVER_FILE_STORE"] = os.environ["_MLFLOW_SERVER_REGISTRY_STORE"] = (
        f"sqlite:///{folder}/mlflow.db"
    )
    os.environ["_MLFLOW_SERVER_ARTIFACT_DESTINATION"] = str(folder / "files")
    os.environ["_MLFLOW_SERVER_ARTIFACT_ROOT"] = "mlflow-artifacts:/"
    os.environ["_MLFLOW_SERVER_SERVE_ARTIFACTS"] = "true"
    from mlflow.server import app
    from werkzeug.serving import make_server

    def mode() -> str:
        return (folder / "mode").read_text(encoding="utf-8").strip()

    server = make_server("127.0.0.1", 0, failing(app, mode), threaded=True)
    print(server.server_port, flush=True)
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    server.serve_forever()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
