"""What the page of a run shows: the texts, and how often progress is sent to the server."""

from __future__ import annotations

import http.client
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from flows import pages
from lexmill.commands.run_pages import decision_rows, graph_markdown, proposal_markdown, slug, stage_counts, stage_rows
from lexmill.evaluation.significance import Comparison
from lexmill.registry import decisions
from lexmill.registry.promotion import Decision
from lexmill.registry.publish import Proposal
from lexmill.runner.graph import Plan, Stage
from lexmill.runner.supervised import Outcome
from tests.support.waiting import wait_for

PLAN = Plan(
    (
        Stage("fetch@plays", (), ()),
        Stage("prepare@plays", ("fetch@plays",), ("code changed",)),
        Stage("tokenizer@bpe", ("prepare@plays",), ()),
        Stage("encode@plays", ("prepare@plays", "tokenizer@bpe"), ("a", "b", "c", "d", "e")),
        Stage("report", ("encode@plays",), ()),
    )
)
OUTCOMES = {
    "prepare@plays": Outcome("prepare@plays", "ran", 0, 2.34),
    "tokenizer@bpe": Outcome("tokenizer@bpe", "restored", 0, 1.0),
    "encode@plays": Outcome("encode@plays", "failed", 2, 0.5, "shards: none"),
    "report": Outcome("report", "stopped", 143, 0.0),
}


def test_the_table_says_how_long_and_why() -> None:
    rows = stage_rows(PLAN, OUTCOMES)
    assert [(row["stage"], row["state"], row["seconds"]) for row in rows] == [
        ("prepare@plays", "ran", 2.3),
        ("tokenizer@bpe", "restored", 1.0),
        ("encode@plays", "failed", 0.5),
        ("report", "not run", None),
    ]
    assert rows[0]["why"] == "code changed"
    assert rows[1]["why"] == "follows prepare@plays"
    assert rows[2]["why"] == "a; b; c; d; 3 more"
    assert (rows[2]["exit code"], rows[2]["message"]) == (2, "shards: none")
    assert stage_counts(PLAN, OUTCOMES) == "1 ran, 1 restored, 1 failed, 1 not run, 1 unchanged"


def test_the_graph_holds_every_stage_once_below_the_last_that_it_needs() -> None:
    assert graph_markdown(PLAN, OUTCOMES).split("\n") == [
        "```",
        "fetch@plays            · unchanged",
        "└─ prepare@plays       ✓ ran 2.3 s",
        "   └─ tokenizer@bpe    ✓ restored 1.0 s",
        "      └─ encode@plays  ✗ failed 0.5 s  (also after prepare@plays)",
        "         └─ report       not run",
        "```",
        "",
    ]


def test_a_proposal_shows_its_metrics() -> None:
    found = Comparison("bits_per_byte", 2.25, 2.5, -0.25, -0.3, -0.2, 0.02, 0.001, 30, "scene", False)
    text = proposal_markdown(Proposal("gpt", "language_model", "3", "1", Decision(True, "better: by far", found)))
    assert "May version 3 of gpt replace version 1 as champion?" in text
    assert "| version 3 (new) | 2.250 |" in text
    assert "| difference | -0.250 [-0.300, -0.200] |" in text
    assert "better: by far." in text


def test_decisions_fit_on_a_page(tmp_path: Path) -> None:
    found = Comparison("bits_per_byte", 2.25123, 2.5, -0.24877, -0.3, -0.2, 0.02, 0.00123, 30, "scene", False)
    about = {"kind": "language_model", "run_id": "r", "approved": None}
    first = Decision(True, "the first version")
    decisions.keep(tmp_path, name="gpt", version="1", decision=first, champion_version=None, **about)
    better = Decision(True, "better: by far", found, 0.0004, 0.8, 0.1)
    decisions.keep(tmp_path, name="gpt", version="2", decision=better, champion_version="1", **about)
    rows = decision_rows(decisions.rows(tmp_path))
    assert {row["version"]: row["difference"] for row in rows} == {"1": "", "2": "-0.249 [-0.300, -0.200]"}
    (row,) = (row for row in rows if row["version"] == "2")
    assert [row[key] for key in ("against", "challenger", "champion", "p", "level", "reason")] == [
        "1",
        "2.251",
        "2.500",
        "0.0012",
        "0.0004",
        "better: by far",
    ]


@pytest.mark.parametrize(("name", "key"), [("train@gpt_tiny", "train-gpt-tiny"), ("sub/dvc.yaml:x", "sub-dvc-yaml-x")])
def test_keys_are_what_prefect_takes(name: str, key: str) -> None:
    assert slug(name) == key


class Server:
    """Stands for Prefect's client: keeps what it is reported, and may be away."""

    def __init__(self) -> None:
        self.sent: list[tuple[float, str]] = []
        self.keys: list[str] = []
        self.away = False
        self.called = threading.Event()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def _tell(self, artifact: Any) -> None:
        self.called.set()
        if self.away:
            raise httpx.ConnectError("away")
        self.sent.append((artifact.data, artifact.description))

    def create_artifact(self, artifact: Any) -> Any:
        self._tell(artifact)
        self.keys.append(artifact.key)
        return type("Made", (), {"id": uuid4()})()

    def update_artifact(self, _id: Any, artifact: Any) -> None:
        self._tell(artifact)


def record(board: pages.ProgressBoard, done: float, total: float | None = 10) -> None:
    data = {"description": "train gpt", "done": done, "total": total, "shown": "loss 2", "closed": False}
    board.record("train@gpt", data, task_run=uuid4(), flow_run=uuid4(), seconds=1.0)


def test_a_thousand_steps_are_few_calls_and_an_absent_server_holds_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PROGRESS_SECONDS", 0.05)
    server = Server()
    server.away = True
    with pages.ProgressBoard(lambda: server) as board:  # type: ignore[arg-type,return-value]
        record(board, 1)
        assert server.called.wait(30)
        assert server.sent == []
        server.away = False
        for step in range(1000):
            record(board, step / 100)
        wait_for(lambda: server.keys)
        record(board, 9)
        wait_for(lambda: server.sent[-1][0] == 90)
        board.end(Outcome("train@gpt", "ran", 0, 3.0))
    assert server.keys == ["progress-train-gpt"]
    assert len(server.sent) < 100
    assert server.sent[-1][0] == 100
    assert server.sent[-1][1].startswith("train@gpt: ran; train gpt: 9/10 (90%), loss 2")


def test_work_without_a_known_end_and_short_work_have_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    with pages.ProgressBoard(lambda: server) as board:  # type: ignore[arg-type,return-value]
        record(board, 5, total=None)
        record(board, 5)
        board.end(Outcome("train@gpt", "ran", 0, 0.1))
    assert server.sent == []


@pytest.mark.e2e
def test_the_local_prefect_server_answers_to_its_own_names_only(prefect_url: str) -> None:
    """Neither a name that a stranger lets point here, nor a stranger's page, reaches it."""
    address = urlsplit(prefect_url)
    assert address.hostname is not None

    def status(**headers: str) -> int:
        connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=60)
        connection.request("GET", "/api/health", headers=headers)
        return connection.getresponse().status

    assert status() == 200
    assert status(Host=f"localhost:{address.port}", Origin=prefect_url) == 200
    assert status(Host=f"evil.example:{address.port}") == 403
    assert status(Origin="http://evil.example") == 403
    socket_url = f"ws://{address.netloc}/api/events/in"
    with connect(socket_url, origin=Origin(prefect_url)):
        pass
    with pytest.raises(InvalidStatus), connect(socket_url, origin=Origin("http://evil.example")):
        pass
