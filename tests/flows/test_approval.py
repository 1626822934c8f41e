"""A person's word before a champion is replaced: asked on the page, with the metrics; silence is a no."""

from __future__ import annotations

import json
import urllib.error
from pathlib import Path
from typing import Any

import pytest
import yaml

from lexmill.params import parse
from lexmill.registry import decisions, lookup, package
from tests.registry.conftest import make, publish_model
from tests.registry.plain import plain_params
from tests.support.waiting import wait_for

pytestmark = pytest.mark.e2e

URI = "sqlite:///mlflow.db"
# How fast models answer is measured elsewhere; here a busy machine must not decide.
ASKING = """
from lexmill.registry import trial
trial.times = lambda *_: {"champion": [0.01], "challenger": [0.01]}
from flows.__main__ import main
main(["run", "--approve"])
"""


def paused(workspace: Any, process: Any, other_than: str = "") -> dict[str, Any]:
    """The run that waits, and its question."""

    def question() -> dict[str, Any] | None:
        assert process.poll() is None, process.communicate()
        for run in workspace.runs("PAUSED"):
            if run["state_id"] != other_than:
                return dict(run)
        return None

    return dict(wait_for(question, "nobody asks"))


def answer(workspace: Any, run: dict[str, Any], approve: bool) -> None:
    """What the button of the page does, with the switch of its form on or off."""

    def given() -> bool:  # the form comes just after the state
        try:
            reply = workspace.post(f"flow_runs/{run['id']}/resume", run_input={"approve": approve})
        except urllib.error.HTTPError as error:
            if error.code != 503:  # Prefect's word for a database that is busy; a person would press again
                raise
            return False
        return bool(reply["status"] == "ACCEPT")

    wait_for(given, "no answer is taken")


def test_who_is_approved_becomes_champion_and_who_is_not_stays(workspace: Any, empty_store: Path) -> None:
    root, plain = workspace.root, plain_params()
    for path in empty_store.iterdir():
        (root / path.name).write_bytes(path.read_bytes())
    (root / "params.yaml").write_text(yaml.safe_dump(plain, sort_keys=False))
    (root / "conf/execution/local.yaml").write_text("threads: 1\n")
    params = parse(plain)
    names = ("gpt", "en_de")
    for name in names:
        publish_model(params, root, name, 0.4, 0)
    for name in names:
        make(params, root, name, 0.9, 1)
        package.write(params, name, root)
    workspace.stage("fetch", "echo 1 > fetch.out")
    with workspace.start("-c", ASKING) as process:
        first = paused(workspace, process)
        asked = workspace.artifacts(first["id"])
        assert "approval-gpt" in asked
        assert "May version 2 of gpt replace version 1 as champion?" in asked["approval-gpt"]["data"]
        assert "| p |" in asked["approval-gpt"]["data"]
        answer(workspace, first, True)
        second = paused(workspace, process, other_than=first["state_id"])
        assert "approval-en-de" in workspace.artifacts(second["id"])
        answer(workspace, second, False)
        output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    assert "gpt: approved" in output
    assert "en_de: not approved" in output
    champions = {name: lookup.champion(URI, name, root) for name in names}
    assert {name: found.version for name, found in champions.items() if found} == {"gpt": "2", "en_de": "1"}
    reasons = {(row["model"], row["version"]): row["reason"] for row in decisions.rows(root)}
    assert reasons["en_de", "2"].startswith("not approved: better")

    shown = workspace.artifacts(first["id"])
    table = json.loads(shown["decisions"]["data"])
    assert {(row["model"], row["outcome"]) for row in table if row["version"] == "2"} == {
        ("gpt", "champion"),
        ("en_de", "stays"),
    }
    links = {key: one["data"] for key, one in shown.items() if key.startswith("mlflow-")}
    assert set(links) == {"mlflow-experiment", "mlflow-comparison", "mlflow-run-gpt", "mlflow-run-en-de"}
    run_id = champions["gpt"].run_id if champions["gpt"] else ""
    assert f"/runs/{run_id}" in links["mlflow-run-gpt"]
    assert "results" in shown


# The flow asks, and writes down what it hears.
ALONE = """
import pathlib, sys
from flows import pipeline
from lexmill.registry.promotion import Decision
from lexmill.registry.publish import Proposal
def finish(root, display, *, approve=None):
    heard = approve(Proposal("gpt", "language_model", "2", "1", Decision(True, "better")))
    pathlib.Path("heard").write_text(str(heard))
    return ""
pipeline.finish = finish
from flows.__main__ import main
main(["run", "--approve", "--approval-hours", sys.argv[1]])
"""


def test_silence_is_a_no_and_the_run_goes_on(workspace: Any) -> None:
    workspace.stage("fetch", "echo 1 > fetch.out")
    code, output = workspace.run("-c", ALONE, "0.0005")
    assert code == 0, output
    assert "gpt: nobody answered in time: not approved" in output
    assert (workspace.root / "heard").read_text() == "False"
    assert workspace.runs()[0]["state_name"] == "Completed"


def test_a_cancel_ends_the_question(workspace: Any) -> None:
    workspace.stage("fetch", "echo 1 > fetch.out")
    with workspace.start("-c", ALONE, "12") as process:
        run = paused(workspace, process)["id"]
        workspace.cancel(run)
        output, _ = process.communicate(timeout=120)
    assert process.returncode == 143, output
    assert "Traceback" not in output
    assert workspace.state(run) == "Cancelled"
    assert not (workspace.root / "heard").exists()
