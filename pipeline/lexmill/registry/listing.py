"""List the registry in rows: the champion of each model, or all versions of one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lexmill.registry import champion as alias
from lexmill.registry.lookup import CHAMPION, DECISION, KIND
from lexmill.report.results import rounded

if TYPE_CHECKING:
    from mlflow import MlflowClient

_FIGURES = ("bits_per_byte", "perplexity", "accuracy", "bleu")  # the first that a model has is shown


def champions(client: MlflowClient) -> list[dict[str, str]]:
    """Return one row a registered model: its champion, since when and why, and its number of versions."""
    rows = []
    for model in sorted(client.search_registered_models(max_results=1000), key=lambda model: str(model.name)):
        versions = alias.versions_of(client, model.name)
        holder = next((v for v in versions if str(v.version) == str(model.aliases.get(CHAMPION))), None)
        rows.append(
            {
                "model": str(model.name),
                "kind": holder.tags.get(KIND, "").replace("_", " ") if holder else "",
                "champion": str(holder.version) if holder else "none",
                "since": str(holder.tags.get(alias.SINCE, "")).replace("T", " ")[:16] if holder else "",
                "metric": _metric(client, holder) if holder else "",
                "versions": str(len(versions)),
                "why": str(holder.tags.get(alias.WHY) or holder.tags.get(DECISION, "")) if holder else "",
            }
        )
    return rows


def versions(client: MlflowClient, name: str) -> list[dict[str, str]]:
    """Return one row a version of a model, the newest first.

    Raises:
        UserError: there is no such model.
    """
    holder = alias.model_of(client, name).aliases.get(CHAMPION)
    return [
        {
            "version": str(one.version),
            "": "champion" if str(one.version) == str(holder) else "",
            "made": datetime.fromtimestamp(one.creation_timestamp / 1000, UTC).strftime("%Y-%m-%d %H:%M"),
            "metric": _metric(client, one),
            "decision": one.tags.get(DECISION, "none yet"),
        }
        for one in reversed(alias.versions_of(client, name))
    ]


def _metric(client: MlflowClient, version: Any) -> str:
    from mlflow.exceptions import MlflowException

    if not version.run_id:
        return ""
    try:
        metrics = client.get_run(version.run_id).data.metrics
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return ""  # its run was deleted
    found = next((name for name in _FIGURES if f"test/{name}" in metrics), None)
    return "" if found is None else f"{found.replace('_', ' ')} {rounded(metrics[f'test/{found}'])}"
