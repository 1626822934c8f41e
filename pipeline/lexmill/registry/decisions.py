"""The decisions about new versions, kept in the workspace and shown as one table.

    .lexmill/decisions/<name>-v<version>.json      what a publish decided, with its figures
    .lexmill/decisions/<name>-by-hand-<time>.json  a champion that was set by hand

The registry holds the same (tag and file of each version); these are for pages that must not ask it: the flow's table,
the table in MLflow, reports/decisions.html. They hold times, so neither they nor that page are outputs of a stage.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexmill.base import layout, storage
from lexmill.params import Params
from lexmill.registry.promotion import Decision
from lexmill.registry.record import log_json

if TYPE_CHECKING:
    from mlflow import MlflowClient

FOLDER = Path(".lexmill") / "decisions"
PAGE = layout.REPORTS / "decisions.html"
TABLE = "decisions.json"
_SHOWN_AS_TABLES = "mlflow.loggedArtifacts"  # the tag in which MLflow's page looks for tables
_FIGURES = ("challenger", "champion", "difference", "low", "high", "p_value")


def now() -> str:
    """The time as it is written everywhere here: UTC, to the millisecond, so that texts sort as times do."""
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
    """Write down what was decided about a version, over what stands there of it; gives what was written.

    Args:
        champion_version: the champion it was compared with; None where there was none.
        approved: what a person answered; None where nobody was asked.
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


def keep_by_hand(root: Path, *, name: str, version: str, before: str | None, outcome: str, reason: str) -> None:
    """Write down that a person moved the champion's alias from the version `before` to another."""
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
    storage.write_json(root / FOLDER / f"{name}-by-hand-{stamp}.json", record)


def read(root: str | Path) -> list[dict[str, Any]]:
    """All decisions of a workspace as they were written down, the newest first."""
    records = [storage.read_json(path) for path in (Path(root) / FOLDER).glob("*.json")]
    return sorted(
        records, key=lambda record: (record["decided"], record["name"], _number(record["version"])), reverse=True
    )


def rows(root: str | Path) -> list[dict[str, Any]]:
    """The table of all decisions of a workspace, the newest first; every row has the same keys, all values are plain.

    A figure that does not exist (a first version is compared with nothing) is None.
    """
    return [_row(record) for record in read(root)]


def write_page(params: Params, root: str | Path) -> None:
    """Write reports/decisions.html, to which the report links."""
    from lexmill.report.page import render_decisions

    storage.write_text(Path(root) / PAGE, render_decisions(rows(root), params))


def log_table(client: MlflowClient, run_id: str, name: str, root: Path) -> None:
    """Log the decisions about a model to a run, as a table that MLflow's page shows.

    MLflow's own `log_table` appends to what is there; here the file is written anew, so doing it again changes nothing.
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


def _number(version: str) -> int:
    return int(version) if version.isdecimal() else 0
