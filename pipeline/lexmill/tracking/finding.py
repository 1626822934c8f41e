"""Find runs by their tags or make them, each once, though answers of the server may get lost.

MLflow makes a new run at every call, and its client repeats a call whose answer was lost: so runs are searched first
and made without repeats. A duplicate that a slow server made late is deleted at the next search.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lexmill.tracking.reaching import CALL_SECONDS

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

PARENT = "mlflow.parentRunId"
MODEL = "lexmill.model"
FINGERPRINT = "lexmill.fingerprint"  # of a model's package
SOURCE = "mlflow.source.name"
_REPEATS, _TIMEOUT = "MLFLOW_HTTP_REQUEST_MAX_RETRIES", "MLFLOW_HTTP_REQUEST_TIMEOUT"
_BYTES_PER_SECOND = 10_000_000  # the slowest transfer, on the server's side too


def model_tags(name: str) -> dict[str, str]:
    """Return the tags of a model's run, by which the experiment's page shows models without stages."""
    return {MODEL: name, SOURCE: "lexmill"}


def find(client: MlflowClient, experiment_id: str, tags: Mapping[str, str]) -> Run | None:
    """Return the oldest run with all of these tags; delete empty younger ones."""
    wanted = " and ".join(f"tags.`{key}` = '{value}'" for key, value in tags.items())
    known = client.search_runs([experiment_id], wanted, order_by=["attributes.start_time ASC"])
    if not known:
        return None
    first, *others = sorted(known, key=lambda run: (not run.data.metrics, run.info.start_time, run.info.run_id))
    for other in others:
        if not other.data.metrics:
            client.delete_run(other.info.run_id)
    return client.get_run(first.info.run_id)  # a search omits inputs and outputs


def make(client: MlflowClient, experiment_id: str, name: str, started: int, tags: Mapping[str, str]) -> Run:
    """Make a run that `started` in milliseconds since 1970, by one call without repeats."""
    with no_repeats():
        return client.create_run(experiment_id, start_time=started, tags=dict(tags), run_name=name)


@contextmanager
def no_repeats() -> Iterator[None]:
    """Let MLflow's client make each call once and wait ten seconds at most; it reads these variables at each call."""
    given = os.environ.get(_TIMEOUT, "")
    longest = min(int(given), CALL_SECONDS) if given.isdecimal() else CALL_SECONDS
    with _set({_REPEATS: "0", _TIMEOUT: str(longest)}):
        yield


@contextmanager
def patient(size: int) -> Iterator[None]:
    """Let MLflow's client wait longer for the answer to an upload: the server may first bring all bytes elsewhere."""
    given = os.environ.get(_TIMEOUT, "")
    seconds = int(given) if given.isdecimal() else CALL_SECONDS
    with _set({_TIMEOUT: str(seconds + size // _BYTES_PER_SECOND)}):
        yield


@contextmanager
def _set(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ |= variables
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
