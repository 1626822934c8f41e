"""`lexmill serve`: answer requests over HTTP with a registered model."""

from __future__ import annotations

from lexmill.base.errors import UserError
from lexmill.base.quiet import quieten
from lexmill.compute import execution
from lexmill.tracking.store import sqlite_path

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def serve(name: str, version: str | None, host: str, port: int) -> None:
    """Serve until Ctrl-C.

    Raises:
        UserError: no such model or version, or the address is taken.
        RetryableError: the tracking server does not answer.
    """
    settings = execution.load_execution()
    path = sqlite_path(settings.tracking_uri)
    if path is not None and not path.is_file():
        raise UserError("there is no registry yet; `lexmill run` makes it", path)
    quieten(offline=True)
    from lexmill.registry import serving

    with serving.listening(host, port) as bound:
        model, version = serving.load(name, version, settings)
        import torch

        if settings.threads:
            torch.set_num_threads(settings.threads)
        if host not in _LOOPBACK:
            print(f"{host} may be reached from elsewhere, and nobody is asked for a password here")
        address = f"[{host}]" if ":" in host else host
        shown = f"http://{address}:{bound.getsockname()[1]}/invocations"
        print(f"{name}, version {version}: {shown} (Ctrl-C ends it)", flush=True)
        serving.run(serving.application(model), bound)
