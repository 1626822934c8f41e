"""The registered champions, for the command line: `lexmill generate`, `classify`, `translate`.

Which version is the champion is asked of the registry each time. Its files come from the workspace's own package when
that is the same model (the fingerprint says so), else from a copy under .lexmill/, brought once from the registry and
checked. With a local store MLflow is not imported at all unless the files must be brought.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from lexmill.base import layout
from lexmill.base.errors import UserError
from lexmill.base.strict import nearest
from lexmill.compute.execution import Execution
from lexmill.params import Params
from lexmill.registry import lookup
from lexmill.registry.download import champion_package
from lexmill.registry.kinds import KINDS, Kind
from lexmill.registry.loader import Precision, load_package
from lexmill.registry.predictor import Predictor

_LINES = 64  # translated at once; a reader at a terminal waits for so many lines or for the end of the input


def choose(name: str | None, kind: Kind, params: Params) -> str:
    """The model's name: the one given, or the only one of its kind.

    Raises:
        UserError: there is none, or several and none was named, or none of that name.
    """
    of = KINDS[kind]
    names = list(of.models(params))
    if not names:
        raise UserError(f"params.yaml has no {of.words}; `lexmill init` or `lexmill compose` adds one")
    if name is None:
        if len(names) > 1:
            raise UserError(f"there are several {of.words}s; say which with --model: {', '.join(names)}")
        return names[0]
    if name not in names:
        raise UserError(f"params.yaml has no {of.words} '{name}'{nearest(name, names)}")
    return name


def open_model(
    name: str | None,
    kind: Kind,
    params: Params,
    execution: Execution,
    root: str | Path = ".",
    *,
    precision: Precision = "float32",
) -> Predictor:
    """The registered champion of a model, loaded.

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
        has = champion.kind.replace("_", " ") or "model that was not made here"
        raise UserError(f"the champion of '{name}' (version {champion.version}) is a {has}, not a {KINDS[kind].words}")
    return load_package(champion_package(champion, execution.tracking_uri, root), precision)


def generate(
    prompts: Iterable[str],
    name: str | None,
    params: Params,
    execution: Execution,
    *,
    root: str | Path = ".",
    settings: Mapping[str, Any] | None = None,
    precision: Precision = "float32",
) -> list[str]:
    """What the champion writes after each prompt, without the prompt.

    Args:
        settings: of the fields of `Sampling` those that are not the default.
        precision: see `load_package`.
    """
    model = open_model(name, "language_model", params, execution, root, precision=precision)
    return model.predict(list(prompts), settings)


def stream(
    prompt: str,
    name: str | None,
    params: Params,
    execution: Execution,
    *,
    root: str | Path = ".",
    settings: Mapping[str, Any] | None = None,
    precision: Precision = "float32",
) -> Iterator[str]:
    """The same for one prompt, in pieces as they are written. The model is opened at once."""
    return open_model(name, "language_model", params, execution, root, precision=precision).stream(prompt, settings)


def classify(
    texts: Iterable[str], name: str | None, params: Params, execution: Execution, root: str | Path = "."
) -> list[dict[str, Any]]:
    """{"label", "score", "scores"} of each text."""
    return open_model(name, "classifier", params, execution, root).predict(list(texts))


def translate(
    lines: Iterable[str],
    name: str | None,
    params: Params,
    execution: Execution,
    *,
    root: str | Path = ".",
    settings: Mapping[str, Any] | None = None,
) -> Iterator[str]:
    """A translation a line, in order, without its newline; empty lines stay empty. The model is opened at once.

    Args:
        lines: without their newlines, read as they are needed.
        settings: beam_size, where it is not the model's own.
    """
    model = open_model(name, "translator", params, execution, root)
    return _translated(model, lines, settings)


def _translated(model: Predictor, lines: Iterable[str], settings: Mapping[str, Any] | None) -> Iterator[str]:
    waiting = iter(lines)
    while batch := list(itertools.islice(waiting, _LINES)):
        # A line break inside a translation would shift every later line.
        yield from (" ".join(text.split("\n")) for text in model.predict(batch, settings))
