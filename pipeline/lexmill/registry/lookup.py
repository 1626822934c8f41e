"""Look up versions of a model in the registry, by fingerprint or by the champion's alias.

A local SQLite store is read directly (under 10 ms; MLflow's client takes about 3 s to import and open), so that a run
with nothing to publish and the use of a model start quickly. For an unknown schema and for every other store, MLflow's
client is used; a test holds the two equal.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexmill.tracking.finding import FINGERPRINT
from lexmill.tracking.store import opened, sqlite_path

if TYPE_CHECKING:
    from mlflow import MlflowClient

CHAMPION = "champion"
KIND = "lexmill.kind"
DECISION = "lexmill.decision"
TRAIN_DATA = "lexmill.train_data"


@dataclass(frozen=True)
class Found:
    """A registered model version. `fingerprint`, `kind` and `decision` are empty if the tag is not set."""

    name: str
    version: str
    run_id: str
    fingerprint: str
    kind: str
    decision: str


def champion(uri: str, name: str, workspace: str | Path = ".") -> Found | None:
    """Return the version that holds the champion's alias; None if the model or the alias does not exist."""
    by_sqlite, by_client = partial(_sqlite_champion, name), partial(client_champion, name=name)
    return _looked_up(uri, workspace, by_sqlite, by_client)


def published(uri: str, name: str, fingerprint: str, workspace: str | Path = ".") -> Found | None:
    """Return the oldest version with this fingerprint; None if there is none."""
    by_sqlite = partial(_sqlite_published, name, fingerprint)
    return _looked_up(uri, workspace, by_sqlite, partial(client_published, name=name, fingerprint=fingerprint))


def _looked_up(
    uri: str,
    workspace: str | Path,
    by_sqlite: Callable[[sqlite3.Connection], Found | None],
    by_client: Callable[[MlflowClient], Found | None],
) -> Found | None:
    path = sqlite_path(uri, workspace)
    if path is not None:
        if not path.is_file():
            return None
        try:
            with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=30)) as connection:
                return by_sqlite(connection)
        except (sqlite3.Error, UnicodeDecodeError):
            pass  # an unknown schema, which MLflow knows
    with opened(uri, workspace) as client:
        return by_client(client)


def client_champion(client: MlflowClient, name: str) -> Found | None:
    """Return the same as `champion`, through MLflow's client."""
    from mlflow.exceptions import MlflowException

    try:
        return _of_client(client.get_model_version_by_alias(name, CHAMPION))
    except MlflowException as error:
        # INVALID_PARAMETER_VALUE: the model has no such alias; the other: there is no such model.
        if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
            return None
        raise


def version(client: MlflowClient, name: str, number: str) -> Found:
    """Return a version that exists."""
    return _of_client(client.get_model_version(name, number))


def client_published(client: MlflowClient, name: str, fingerprint: str) -> Found | None:
    """Return the same as `published`, through MLflow's client."""
    versions = client.search_model_versions(f"name = '{name}' and tags.`{FINGERPRINT}` = '{fingerprint}'")
    return _of_client(min(versions, key=lambda version: int(version.version))) if versions else None


def _of_client(version: Any) -> Found:
    return _found(version.name, version.version, version.run_id, version.tags)


def _found(name: str, version: int | str, run_id: str | None, tags: Mapping[str, str]) -> Found:
    tagged = (tags.get(key, "") for key in (FINGERPRINT, KIND, DECISION))
    return Found(name, str(version), run_id or "", *tagged)


def _sqlite_champion(name: str, connection: sqlite3.Connection) -> Found | None:
    row = connection.execute(
        "SELECT version FROM registered_model_aliases WHERE name = ? AND alias = ?", (name, CHAMPION)
    ).fetchone()
    return None if row is None else _sqlite_version(connection, name, row[0])


def _sqlite_published(name: str, fingerprint: str, connection: sqlite3.Connection) -> Found | None:
    row = connection.execute(
        "SELECT min(v.version) FROM model_versions v JOIN model_version_tags t"
        " ON t.name = v.name AND t.version = v.version"
        " WHERE v.name = ? AND t.key = ? AND t.value = ? AND v.current_stage <> 'Deleted_Internal'",
        (name, FINGERPRINT, fingerprint),
    ).fetchone()
    return None if row[0] is None else _sqlite_version(connection, name, row[0])


def _sqlite_version(connection: sqlite3.Connection, name: str, version: int) -> Found | None:
    row = connection.execute(
        "SELECT run_id FROM model_versions WHERE name = ? AND version = ? AND current_stage <> 'Deleted_Internal'",
        (name, version),
    ).fetchone()
    if row is None:
        return None
    tags = dict(
        connection.execute("SELECT key, value FROM model_version_tags WHERE name = ? AND version = ?", (name, version))
    )
    return _found(name, version, row[0], tags)
