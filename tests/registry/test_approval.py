"""A person is asked before a champion is replaced, and what is decided is kept in the workspace."""

import json
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.artifacts import download_artifacts

from lexmill.compute.execution import Execution
from lexmill.params import Params
from lexmill.registry import decisions, lookup, package
from lexmill.registry.publish import Approve, Outcome, Proposal, publish_all
from lexmill.tracking import store

from .conftest import make, publish_model

URI = "sqlite:///mlflow.db"


def _publish(params: Params, root: Path, quality: float, seed: int, approve: Approve | None) -> tuple[Outcome, str]:
    make(params, root, "en_de", quality, seed)
    package.write(params, "en_de", root)
    said: list[str] = []
    (outcome,) = publish_all(params, Execution(tracking_uri=URI), said.append, root, approve=approve)
    return outcome, "\n".join(said)


def _champion(root: Path) -> str | None:
    found = lookup.champion(URI, "en_de", root)
    return None if found is None else found.version


def test_the_alias_waits_for_a_person_only_where_a_champion_would_be_replaced(params: Params, root: Path) -> None:
    asked: list[Proposal] = []

    def refuse(proposal: Proposal) -> bool:
        asked.append(proposal)
        return False

    first, _ = _publish(params, root, 0.5, 0, refuse)
    worse, _ = _publish(params, root, 0.1, 1, refuse)
    assert first.champion
    assert not worse.champion
    assert asked == []

    better, said = _publish(params, root, 0.9, 2, refuse)
    (proposal,) = asked
    assert (proposal.name, proposal.kind, proposal.version) == ("en_de", "translator", "3")
    assert proposal.champion_version == "1"
    assert proposal.decision.promote
    assert "en_de: version 3 waits for approval: better: bleu" in said
    assert not better.champion
    assert better.reason.startswith("not approved: better: bleu")
    assert _champion(root) == "1"
    again, _ = _publish(params, root, 0.9, 2, refuse)  # decided is decided
    assert not again.created
    assert len(asked) == 1

    best, _ = _publish(params, root, 0.95, 3, lambda _: True)
    assert best.champion
    assert _champion(root) == best.version == "4"

    table = decisions.rows(root)
    assert [(row["version"], row["against"], row["outcome"]) for row in reversed(table)] == [
        ("1", None, "champion"),
        ("2", "1", "stays"),
        ("3", "1", "stays"),
        ("4", "1", "champion"),
    ]
    assert all(row.keys() == table[0].keys() for row in table)
    assert table[0]["metric"] == "bleu"
    assert table[0]["p_value"] < table[0]["level"]
    assert table[-1]["metric"] is None
    shown = _table(root, best.run_id)
    assert shown["columns"] == list(table[0])
    at = shown["columns"].index("outcome")
    assert [row[at] for row in shown["data"]] == ["champion", "stays", "stays", "champion"]
    kept = json.loads((root / ".lexmill/decisions/en_de-v3.json").read_text())
    assert (kept["approved"], kept["promote"], kept["run_id"]) == (False, False, better.run_id)
    assert decisions.read(root)[0]["approved"] is True


def _table(root: Path, run_id: str) -> dict[str, Any]:
    """What MLflow's page of a run shows as a table."""
    uri = store.absolute_uri(URI, root)
    (shown,) = json.loads(MlflowClient(uri, uri).get_run(run_id).data.tags["mlflow.loggedArtifacts"])
    assert shown == {"path": "decisions.json", "type": "table"}
    found = download_artifacts(run_id=run_id, artifact_path="decisions.json", tracking_uri=uri)
    table: dict[str, Any] = json.loads(Path(found).read_text())
    return table


def test_the_page_of_decisions(params: Params, root: Path) -> None:
    publish_model(params, root, "en_de", 0.3, 0)
    publish_model(params, root, "en_de", 0.9, 1)
    page = root / decisions.PAGE
    text = page.read_text(encoding="utf-8")
    assert "<h1>Champions: en_de version 2.</h1>" in text
    assert text.count('<th scope="row">en_de</th>') == 2
    assert "better: bleu" in text
    assert "guarded: median latency" in text
    assert 'href="index.html"' in text
    moved = {"version": "1", "before": "2", "outcome": "rolled back by hand", "reason": "<b>too slow</b>"}
    with decisions.by_hand(root, name="en_de", **moved):
        pass
    page.unlink()
    publish_all(params, Execution(tracking_uri=URI), lambda _: None, root)  # nothing to publish: the page comes back
    text = page.read_text(encoding="utf-8")
    assert "Champions: en_de version 1." in text
    assert "&lt;b&gt;too slow&lt;/b&gt;" in text


def test_a_publish_that_is_stopped_while_it_asks_asks_again(params: Params, root: Path) -> None:
    publish_model(params, root, "en_de", 0.3, 0)

    def cancelled(_: Proposal) -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        _publish(params, root, 0.9, 1, cancelled)
    assert _champion(root) == "1"
    outcome, _ = _publish(params, root, 0.9, 1, lambda _: True)
    assert (outcome.version, outcome.champion) == ("2", True)
    assert _champion(root) == "2"


def test_another_champion_meanwhile_is_asked_about_anew(params: Params, root: Path) -> None:
    """Nothing is locked while a person thinks."""
    publish_model(params, root, "en_de", 0.3, 0)
    publish_model(params, root, "en_de", 0.1, 1)
    asked: list[str] = []

    def approve(proposal: Proposal) -> bool:
        asked.append(proposal.champion_version)
        if len(asked) == 1:
            from lexmill.registry import champion as alias
            from lexmill.tracking.store import opened

            with opened(URI, root) as client:
                alias.move(client, "en_de", "2", "by hand")
        return True

    outcome, _ = _publish(params, root, 0.9, 2, approve)
    assert asked == ["1", "2"]
    assert (outcome.version, outcome.champion) == ("3", True)
    assert _champion(root) == "3"
    kept = json.loads((root / ".lexmill/decisions/en_de-v3.json").read_text())
    assert (kept["approved"], kept["champion_version"]) == (True, "2")
