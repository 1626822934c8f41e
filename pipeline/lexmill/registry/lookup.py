"""Which versions of a model the registry holds, found by fingerprint or by the champion's alias.

A local SQLite store is read directly (under 10 ms; MLflow's client takes about 3 s to import and open), so that a run
with nothing to publish, and the use of a model, start at once. When the file does not answer as expected (another
schema), and for every other store, MLflow's client is asked; a test holds the two equal.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexmill.tracking.store import opened, sqlite_path

if TYPE_CHECKING:
    from mlflow import MlflowClient

CHAMPION = "champion"
FINGERPRINT = "lexmill.fingerprint"
KIND = "lexmill.kind"
DECISION = "lexmill.decision"
TRAIN_DATA = "lexmill.train_data"


@dataclass(frozen=True)
class Found:
    """A registered model version. `fingerprint`, `kind` and `decision` are empty where the tag is not set."""

    name: str
    version: str
    run_id: str
    fingerprint: str
    kind: str
    decision: str


def champion(uri: str, name: str, workspace: str | Path = ".") -> Found | None:
    """The version that holds the champion's alias; None when the model or the alias does not exist."""
    path = sqlite_path(uri, workspace)
    if path is not None:
        if not path.is_file():
            return None
        try:
            return _sqlite_champion(path, name)
        except sqlite3.Error:
            pass  # another schema than the one known here: MLflow knows it
    with opened(uri, workspace) as client:
        return client_champion(client, name)


def published(uri: str, name: str, fingerprint: str, workspace: str | Path = ".") -> Found | None:
    """The oldest version with this fingerprint; None when there is none."""
    path = sqlite_path(uri, workspace)
    if path is not None:
        if not path.is_file():
            return None
        try:
            return _sqlite_published(path, name, fingerprint)
        except sqlite3.Error:
            pass  # as above
    with opened(uri, workspace) as client:
        return client_published(client, name, fingerprint)


def client_champion(client: MlflowClient, name: str) -> Found | None:
    """As `champion`, through MLflow's client."""
    from mlflow.exceptions import MlflowException

    try:
        return _found(client.get_model_version_by_alias(name, CHAMPION))
    except MlflowException as error:
        # A model without this alias is answered with INVALID_PARAMETER_VALUE, an unknown model with the other.
        if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
            return None
        raise


def client_published(client: MlflowClient, name: str, fingerprint: str) -> Found | None:
    """As `published`, through MLflow's client."""
    versions = client.search_model_versions(f"name = '{name}' and tags.`{FINGERPRINT}` = '{fingerprint}'")
    return _found(min(versions, key=lambda version: int(version.version))) if versions else None


def _found(version: Any) -> Found:
    tags = version.tags
    return Found(
        name=version.name,
        version=str(version.version),
        run_id=version.run_id or "",
        fingerprint=tags.get(FINGERPRINT, ""),
        kind=tags.get(KIND, ""),
        decision=tags.get(DECISION, ""),
    )


def _connected(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=30)


def _sqlite_champion(path: Path, name: str) -> Found | None:
    with closing(_connected(path)) as connection:
        row = connection.execute(
            "SELECT version FROM registered_model_aliases WHERE name = ? AND alias = ?", (name, CHAMPION)
        ).fetchone()
        return None if row is None else _sqlite_version(connection, name, row[0])


def _sqlite_published(path: Path, name: str, fingerprint: str) -> Found | None:
    with closing(_connected(path)) as connection:
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
    return Found(
        name=name,
        version=str(version),
        run_id=row[0] or "",
        fingerprint=tags.get(FINGERPRINT, ""),
        kind=tags.get(KIND, ""),
        decision=tags.get(DECISION, ""),
    )
