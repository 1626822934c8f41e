"""A new version beside the champion of its day: what is compared, and what is decided from it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexmill.evaluation.bootstrap import Resampling
from lexmill.evaluation.rows import read_rows
from lexmill.params import Params
from lexmill.registry import lookup, package
from lexmill.registry.lookup import Found
from lexmill.registry.promotion import Decision, decide

if TYPE_CHECKING:
    from mlflow import MlflowClient


def compared(
    client: MlflowClient, params: Params, folder: Path, description: dict[str, Any], found: Found
) -> tuple[Decision, Found | None]:
    """The decision about a version, and the other version that was champion before (None: none was).

    Args:
        folder: its package.
        description: its package.json.
    """
    champion = lookup.client_champion(client, found.name)
    if champion is None:
        return Decision(True, "the first version" if found.version == "1" else "no version was champion"), None
    if champion.version == found.version:
        return Decision(True, "it was made champion before the publishing was interrupted"), None
    return _against(champion, params, folder, description), champion


def _against(champion: Found, params: Params, folder: Path, description: dict[str, Any]) -> Decision:
    if champion.kind != description["kind"]:
        return Decision(
            False,
            f"version {champion.version} is {champion.kind or 'no model of ours'}, this one {description['kind']};"
            f" give it another name, or `lexmill promote {champion.name}` if you want it",
        )
    theirs = _rows(champion)
    if theirs is None:
        return Decision(
            False,
            f"version {champion.version} has no test rows to compare with; `lexmill promote {champion.name}` if you"
            " want the new one",
        )
    evaluation = params.evaluation
    return decide(
        description["kind"],
        read_rows(folder / package.ROWS),
        theirs,
        champion_version=champion.version,
        rule=params.promotion,
        resampling=Resampling(evaluation.bootstrap_samples, evaluation.confidence, params.data_seed),
    )


def _rows(version: Found) -> list[dict[str, Any]] | None:
    """The test rows in a version's package; None when it has none."""
    from mlflow.artifacts import download_artifacts, list_artifacts

    inside = f"models:/{version.name}/{version.version}/data/{version.name}"
    if not any(Path(entry.path).name == package.ROWS for entry in list_artifacts(artifact_uri=inside)):
        return None
    with tempfile.TemporaryDirectory() as folder:
        return read_rows(download_artifacts(artifact_uri=f"{inside}/{package.ROWS}", dst_path=folder))
