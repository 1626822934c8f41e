"""`lexmill serve`: a registered model behind MLflow's own scoring application, in one process that ends by itself.

It runs the application of `mlflow models serve`, with the same addresses and formats, behind a gate (`gate`). There is
one process only: Ctrl-C, SIGTERM and a kill end it.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from lexmill.base.allowed_hosts import LOOPBACK, AllowedHosts, App
from lexmill.base.errors import UserError
from lexmill.compute.execution import Execution
from lexmill.registry import package
from lexmill.registry.download import registered_package
from lexmill.registry.gate import Gate, PatientProtocol
from lexmill.registry.loader import load_package
from lexmill.registry.logged_model import signature
from lexmill.registry.served import ServedModel
from lexmill.tracking.store import opened

if TYPE_CHECKING:
    from mlflow.pyfunc import PyFuncModel

_REQUEST_SECONDS = "600"  # MLflow's own minute is short for requests that wait for others
_WAITING = 2048  # connections that the system holds for us
_END_SECONDS = 10  # for active requests when the server ends


def application(model: PyFuncModel) -> App:
    """Return MLflow's scoring application for a loaded model, behind the gate."""
    from mlflow.pyfunc import scoring_server

    os.environ.setdefault("MLFLOW_SCORING_SERVER_REQUEST_TIMEOUT", _REQUEST_SECONDS)
    return Gate(scoring_server.init(model))


def load(name: str, version: str | None, execution: Execution, root: str | Path = ".") -> tuple[PyFuncModel, str]:
    """Load a registered model; return it and its version.

    MLflow's own loading would run whatever loader module, pickle or code path the registered model names. Here the
    registry gives only the package, which is checked and loaded as data.

    Args:
        version: None: the champion.
        root: the workspace.

    Raises:
        UserError: no such model or version, or it has no champion, or it was not made here.
        RetryableError: the tracking server does not answer.
    """
    uri = execution.tracking_uri
    with opened(uri) as client:
        from lexmill.registry import champion as alias

        found = alias.version_of(client, name, version)
        return of_package(registered_package(found, uri, Path(root))), found.version


def of_package(folder: str | Path) -> PyFuncModel:
    """Load a package as what MLflow's scoring application takes."""
    from mlflow.models import Model
    from mlflow.pyfunc import PyFuncModel

    about = Model(signature=signature(package.read(folder)))
    return PyFuncModel(about, ServedModel(load_package(folder)))


def listening(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 takes a free one.

    Raises:
        UserError: the address is not available.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        bound.listen(_WAITING)
    except (OSError, OverflowError) as error:
        bound.close()
        raise UserError(
            f"cannot listen on {host}:{port} ({getattr(error, 'strerror', error)}); try another --port"
        ) from None
    return bound


def run(app: App, bound: socket.socket, hosts: Iterable[str]) -> None:
    """Answer requests until a signal; active ones then get ten seconds.

    Args:
        hosts: the names that requests may address it by, besides the loopback ones; "*": any.
    """
    import uvicorn

    if "*" not in hosts:
        app = AllowedHosts(app, (*LOOPBACK, *hosts))
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=_END_SECONDS,
        lifespan="off",
        http=PatientProtocol,
        limit_concurrency=_WAITING,
    )
    uvicorn.Server(config).run(sockets=[bound])
