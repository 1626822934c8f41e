"""Load registered champions for the command line.

The registry is asked for the champion each time. Its files come from the workspace's own package if that has the same
fingerprint, else from a copy under .lexmill/, downloaded once and checked. With a local store MLflow is imported only
for a download.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lexmill import kinds
from lexmill.base import layout
from lexmill.base.errors import UserError
from lexmill.base.strict import nearest
from lexmill.compute.execution import Execution
from lexmill.decoding.predictor import Predictor
from lexmill.params import Params
from lexmill.registry import lookup, package
from lexmill.registry.download import registered_package
from lexmill.registry.loader import Precision, load_package
from lexmill.registry.lookup import Found
from lexmill.tracking.store import opened


def choose(name: str | None, kind: str | None, params: Params) -> str:
    """Return the model's name: the given one, or the only one of its kind (None: of any).

    Raises:
        UserError: there is none, or several and none was named, or none of that name.
    """
    words, names = (
        ("model", list(params.models)) if kind is None else (kinds.find(kind).words, list(params.of_kind(kind)))
    )
    if not names:
        raise UserError(f"params.yaml has no {words}; `lexmill init` or `lexmill compose` adds one")
    if name is None:
        if len(names) > 1:
            raise UserError(f"there are several {words}s; say which with --model: {', '.join(names)}")
        return names[0]
    if name not in names:
        raise UserError(f"params.yaml has no {words} '{name}'{nearest(name, names)}")
    return name


def open_model(
    name: str | None,
    kind: str,
    params: Params,
    execution: Execution,
    root: str | Path = ".",
    *,
    precision: Precision = "float32",
) -> Predictor:
    """Load the registered champion of a model.

    Args:
        name: the model, or None where there is only one of its kind.
        kind: its kind.
        params: the choices, which name the models.
        execution: `tracking_uri` is used.
        root: the workspace.
        precision: see `load_package`.

    Raises:
        UserError: no such model, or it is not registered yet.
        RetryableError: the tracking server does not answer.
    """
    root = Path(root)
    name = choose(name, kind, params)
    champion = lookup.champion(execution.tracking_uri, name, root)
    if champion is None:
        made = (root / layout.package(name)).is_dir()
        do = "`lexmill publish` registers it" if made else "`lexmill run` trains and registers it"
        raise UserError(f"'{name}' has no registered champion yet; {do}")
    if champion.kind != kind:
        has = kinds.find(champion.kind).one if champion.kind in kinds.names() else "a model that was not made here"
        raise UserError(f"the champion of '{name}' (version {champion.version}) is {has}, not {kinds.find(kind).one}")
    return load_package(registered_package(champion, execution.tracking_uri, root), precision)


def open_registered(
    name: str, version: str | None, execution: Execution, root: str | Path = "."
) -> tuple[Found, dict[str, Any], Predictor]:
    """Load a registered model of any kind.

    Args:
        name, version: the model; None: its champion.
        execution: `tracking_uri` is used.
        root: the workspace.

    Returns:
        The version, its package.json, and the model on the CPU.

    Raises:
        UserError: no such model or version, or it is not lexmill's.
        RetryableError: the tracking server does not answer.
    """
    root = Path(root)
    with opened(execution.tracking_uri, root) as client:
        from lexmill.registry.champion import version_of

        found = version_of(client, name, version)
        folder = registered_package(found, execution.tracking_uri, root)
    return found, package.verify(folder), load_package(folder)
