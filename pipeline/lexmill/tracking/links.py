"""Addresses of MLflow's pages.

`workflowType=machine_learning` selects the view with runs, curves and comparisons instead of the one for chat
applications; the key of a view (`tracking.view`) selects the table with metrics.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from urllib.parse import quote, urlsplit, urlunsplit

LOCAL_PAGES = "http://127.0.0.1:5000"
VIEW = "lexmill"
_TRAINING = "workflowType=machine_learning"


def base_url(uri: str) -> str:
    """Return where a store's pages are: the server, without credentials, or where `make ui` serves a local file."""
    if not uri.startswith(("http://", "https://")):
        return LOCAL_PAGES
    parts = urlsplit(uri)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))


def experiment_url(base: str, experiment_id: str) -> str:
    """Return the address of an experiment's table of runs and metrics."""
    return f"{base}/#/experiments/{experiment_id}/runs?{_TRAINING}&viewStateShareKey={VIEW}"


def run_url(base: str, experiment_id: str, run_id: str) -> str:
    """Return the address of a run: its curves, params and files."""
    return f"{base}/#/experiments/{experiment_id}/runs/{run_id}?{_TRAINING}"


def compare_url(base: str, experiment_id: str, run_ids: Sequence[str]) -> str:
    """Return the address of a comparison of runs: parallel coordinates, curves, params."""
    runs, experiments = (quote(json.dumps(list(ids), separators=(",", ":"))) for ids in (run_ids, [experiment_id]))
    return f"{base}/#/compare-runs?runs={runs}&experiments={experiments}&{_TRAINING}"
