"""Addresses of MLflow's pages."""

import json
from urllib.parse import parse_qs

from lexmill.tracking.links import base_url, compare_url, experiment_url, run_url

TRAINING = "workflowType=machine_learning"


def test_a_local_database_is_shown_where_make_ui_serves_it() -> None:
    assert base_url("sqlite:///mlflow.db") == "http://127.0.0.1:5000"


def test_a_server_shows_itself_without_its_password() -> None:
    assert base_url("https://me:secret@mlflow.example:8443/path/") == "https://mlflow.example:8443/path"


def test_the_runs_open_in_the_view_with_curves() -> None:
    assert experiment_url("http://h", "3") == f"http://h/#/experiments/3/runs?{TRAINING}&viewStateShareKey=lexmill"
    assert run_url("http://h", "3", "a") == f"http://h/#/experiments/3/runs/a?{TRAINING}"


def test_runs_side_by_side() -> None:
    page, _, query = compare_url("http://h", "3", ["a", "b"]).partition("?")
    assert page == "http://h/#/compare-runs"
    found = {key: value for key, [value] in parse_qs(query).items()}
    assert found.pop("workflowType") == "machine_learning"
    assert {key: json.loads(value) for key, value in found.items()} == {"runs": ["a", "b"], "experiments": ["3"]}
