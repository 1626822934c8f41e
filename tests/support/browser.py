"""Chromium without a window, driven by its DevTools protocol: only a browser sees pages that scripts make."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from websockets.sync.client import ClientConnection, connect

_START_SECONDS = 120.0


class Browser:
    """One page of one browser of its own; a context manager that leaves nothing behind.

    Args:
        program: the path of Chromium.
        width, height: of the page, in pixels.
    """

    def __init__(self, program: str, width: int = 1280, height: int = 900) -> None:
        self._profile = Path(tempfile.mkdtemp(prefix="chromium-"))
        options = [
            *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"),
            *("--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
            *("--remote-debugging-port=0", f"--user-data-dir={self._profile}", f"--window-size={width},{height}"),
            # Whatever a page asks for, nothing outside of this machine is reached.
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        ]
        self._size = (width, height)
        self._log = open(self._profile / "log", "wb")  # noqa: SIM115 (closed with the browser)
        self._process = subprocess.Popen(
            [program, *options, "about:blank"],
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
            env={**os.environ, "HOME": str(self._profile)},
        )
        self._numbers = itertools.count(1)
        self._page: ClientConnection | None = None

    def __enter__(self) -> Self:
        try:
            self._attach()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the browser and remove its profile."""
        if self._page is not None:
            self._page.close()
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._log.close()
        for _ in range(20):  # its children may write for another moment
            shutil.rmtree(self._profile, ignore_errors=True)
            if not self._profile.exists():
                break
            time.sleep(0.1)

    def _attach(self) -> None:
        place = self._profile / "DevToolsActivePort"
        deadline = time.monotonic() + _START_SECONDS
        while not place.is_file() or len(place.read_text().split("\n")) < 2:
            assert self._process.poll() is None, (self._profile / "log").read_text(errors="replace")
            assert time.monotonic() < deadline, "Chromium does not start"
            time.sleep(0.05)
        port, path = place.read_text().split("\n")[:2]
        self._page = connect(f"ws://127.0.0.1:{port}{path}", max_size=None, open_timeout=60, compression=None)
        (target,) = (one for one in self._call("Target.getTargets")["targetInfos"] if one["type"] == "page")
        attached = self._call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        self.resize(*self._size)

    _session = ""

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        assert self._page is not None
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        self._page.send(json.dumps(message))
        while True:
            answer = json.loads(self._page.recv(timeout=120))
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                found: dict[str, Any] = answer["result"]
                return found

    # ---------------------------------------------------------------- what a person does

    def resize(self, width: int, height: int) -> None:
        """Make the page this large."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._call("Emulation.setDeviceMetricsOverride", **size)

    def open(self, address: str) -> None:
        """Go to an address; a link within the same page (`#/...`) too."""
        self._call("Page.navigate", url="about:blank")
        self._call("Page.navigate", url=address)

    def run(self, script: str) -> Any:
        """The value of an expression of the page."""
        answer = self._call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def text(self) -> str:
        """What can be read on the page."""
        return str(self.run("document.body ? document.body.innerText : ''") or "")

    def wait(self, *words: str, seconds: float = 300.0) -> str:
        """The page's text once all the words can be read on it."""
        deadline = time.monotonic() + seconds
        while True:
            text = self.text()
            lacking = [word for word in words if word not in text]
            if not lacking:
                return text
            assert time.monotonic() < deadline, f"{self.run('location.href')} shows no {lacking}:\n{text[:3000]}"
            time.sleep(0.2)

    def picture(self, path: Path, *, settled: float = 1.0) -> None:
        """Take a picture of what is seen, when nothing has changed for `settled` seconds."""
        before, since, deadline = b"", time.monotonic(), time.monotonic() + 60
        while True:
            image = base64.b64decode(self._call("Page.captureScreenshot", format="png")["data"])
            now = time.monotonic()
            if image != before:
                before, since = image, now
            elif now - since >= settled:
                break
            if now > deadline:
                break  # something on it moves for ever
            time.sleep(0.2)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(before)
