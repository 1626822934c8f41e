"""Addresses of MLflow's pages.

The page opens in a view made for chat applications; `workflowType=machine_learning` asks for the one with runs,
curves and comparisons, and the key of a view (`tracking.view`) for the table with figures.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from urllib.parse import quote, urlsplit, urlunsplit

LOCAL_PAGES = "http://127.0.0.1:5000"
VIEW = "lexmill"
_TRAINING = "workflowType=machine_learning"


def base_url(uri: str) -> str:
    """Where the pages of a store are: the server itself, or where `make ui` serves a local database.

    A user name or password in the address is left out.
    """
    if not uri.startswith(("http://", "https://")):
        return LOCAL_PAGES
    parts = urlsplit(uri)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))


def experiment_url(base: str, experiment_id: str) -> str:
    """The table of an experiment's runs, with their figures."""
    return f"{base}/#/experiments/{experiment_id}/runs?{_TRAINING}&viewStateShareKey={VIEW}"


def run_url(base: str, experiment_id: str, run_id: str) -> str:
    """One run: its curves, params and files."""
    return f"{base}/#/experiments/{experiment_id}/runs/{run_id}?{_TRAINING}"


def compare_url(base: str, experiment_id: str, run_ids: Sequence[str]) -> str:
    """Runs beside each other: parallel coordinates, curves, params."""
    runs, experiments = (quote(json.dumps(list(ids), separators=(",", ":"))) for ids in (run_ids, [experiment_id]))
    return f"{base}/#/compare-runs?runs={runs}&experiments={experiments}&{_TRAINING}"
