"""The decisions about new versions, stored in the workspace and shown as one table.

    .lexmill/decisions/<name>-v<version>.json      a publish's decision, with its metrics
    .lexmill/decisions/<name>-by-hand-<time>.json  a champion that was set by hand
    .lexmill/decisions/<name>-by-hand-<time>.moving  the same while the alias is moved, or where that was interrupted

The registry holds the same (tag and file of each version); these are for pages that must not query it: the flow's
table, the table in MLflow, reports/decisions.html. They hold times, so neither they nor that page are stage outputs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexmill.base import layout, storage
from lexmill.params import Params
from lexmill.registry import lookup
from lexmill.registry.promotion import Decision
from lexmill.registry.record import log_json

if TYPE_CHECKING:
    from mlflow import MlflowClient

FOLDER = Path(".lexmill") / "decisions"
PAGE = layout.REPORTS / "decisions.html"
TABLE = "decisions.json"
_MOVING = ".moving"
_SHOWN_AS_TABLES = "mlflow.loggedArtifacts"  # the tag that lists tables for MLflow's page
_FIGURES = ("challenger", "champion", "difference", "low", "high", "p_value")


def now() -> str:
    """Return the time in UTC, to the millisecond, as text that sorts by time."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def keep(
    root: Path,
    *,
    name: str,
    kind: str,
    version: str,
    run_id: str,
    decision: Decision,
    champion_version: str | None,
    approved: bool | None,
) -> dict[str, Any]:
    """Write the decision about a version, over an earlier one, and return what was written.

    Args:
        champion_version: the champion it was compared with; None: there was none.
        approved: a person's answer; None: no approval was needed.
    """
    record = {
        "decided": now(),
        "name": name,
        "kind": kind,
        "version": version,
        "run_id": run_id,
        "champion_version": champion_version,
        "approved": approved,
        "outcome": decision.word,
        **decision.plain(),
    }
    storage.write_json(root / FOLDER / f"{name}-v{version}.json", record)
    return record


@contextmanager
def by_hand(root: Path, *, name: str, version: str, before: str | None, outcome: str, reason: str) -> Iterator[None]:
    """Record that a person moves the champion's alias from the version `before` to another while the context lasts.

    The record is written before the move, so that a kill cannot lose it, and counts after it. What an interrupted move
    leaves is for `settle`.
    """
    decided = now()
    record = {
        "decided": decided,
        "name": name,
        "version": version,
        "champion_version": before,
        "outcome": outcome,
        "promote": True,
        "reason": reason,
    }
    stamp = "".join(sign for sign in decided if sign.isalnum())
    moving = root / FOLDER / f"{name}-by-hand-{stamp}{_MOVING}"
    storage.write_json(moving, record)
    yield
    _count(moving)


def interrupted(root: Path) -> list[Path]:
    """Return the records of moves by hand that were interrupted, before or after the alias had moved."""
    return sorted((root / FOLDER).glob(f"*{_MOVING}"))


def settle(client: MlflowClient, root: Path) -> None:
    """Count the interrupted moves by hand that the registry has made, and forget the others.

    The caller holds the lock of publishing, so no move is under way.
    """
    for moving in interrupted(root):
        record = storage.read_json(moving)
        champion = lookup.client_champion(client, record["name"])
        if champion is not None and champion.version == record["version"]:
            _count(moving)
        else:
            moving.unlink()


def _count(moving: Path) -> None:
    os.replace(moving, moving.with_suffix(".json"))


def read(root: str | Path) -> list[dict[str, Any]]:
    """Return all recorded decisions of a workspace, the newest first."""

    def order(record: dict[str, Any]) -> tuple[str, str, int]:
        version = record["version"]
        return record["decided"], record["name"], int(version) if version.isdecimal() else 0

    records = [storage.read_json(path) for path in (Path(root) / FOLDER).glob("*.json")]
    return sorted(records, key=order, reverse=True)


def rows(root: str | Path) -> list[dict[str, Any]]:
    """Return the table of all decisions of a workspace, the newest first, with the same keys and plain values in each.

    A missing metric (a first version is compared with nothing) is None.
    """
    return [_row(record) for record in read(root)]


def write_page(params: Params, root: str | Path) -> None:
    """Write reports/decisions.html, which the report links to."""
    from lexmill.report.page import render_decisions

    storage.write_text(Path(root) / PAGE, render_decisions(rows(root), params))


def log_table(client: MlflowClient, run_id: str, name: str, root: Path) -> None:
    """Log the decisions about a model to a run, as a table for MLflow's page.

    MLflow's own `log_table` appends; this overwrites the file, so repeating it changes nothing.
    """
    shown = [row for row in rows(root) if row["model"] == name]
    columns = list(shown[0]) if shown else []
    table = {"columns": columns, "data": [[row[column] for column in columns] for row in shown]}
    log_json(client, run_id, table, TABLE)
    client.set_tag(run_id, _SHOWN_AS_TABLES, json.dumps([{"path": TABLE, "type": "table"}]))


def _row(record: dict[str, Any]) -> dict[str, Any]:
    comparison = record.get("comparison") or {}
    return {
        "decided": record["decided"],
        "model": record["name"],
        "version": record["version"],
        "against": record["champion_version"],
        "outcome": record["outcome"],
        "metric": comparison.get("metric"),
        **{key: comparison.get(key) for key in _FIGURES},
        "level": record.get("level"),
        "power": record.get("power"),
        "least_gain": record.get("least_gain"),
        "guards": "; ".join(guard["words"] for guard in record.get("guards", ())) or None,
        "reason": record["reason"],
    }
