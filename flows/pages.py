"""Artifacts of a run on its Prefect page: stages, graph, progress, results, decisions, links to MLflow.

Keys are the same in every run, so an artifact's page shows the latest and its history.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from httpx import HTTPError
from prefect import get_run_logger
from prefect.artifacts import create_link_artifact, create_markdown_artifact, create_table_artifact
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate

from lexmill.base.errors import LexmillError
from lexmill.base.progress import line_text
from lexmill.commands.run_pages import decision_rows, graph_markdown, mlflow_links, slug, stage_counts, stage_rows
from lexmill.registry import decisions
from lexmill.runner.session import Session
from lexmill.runner.supervised import Outcome

PROGRESS_SECONDS = 3.0


def show_stages(session: Session) -> None:
    """Show what ran, why, how it ended and how long it took; and the graph."""
    counts = stage_counts(session.plan, session.outcomes)
    create_table_artifact(stage_rows(session.plan, session.outcomes), key="stages", description=f"Stages: {counts}")
    create_markdown_artifact(
        graph_markdown(session.plan, session.outcomes), key="graph", description=f"The graph of stages: {counts}"
    )


def show_skipped(text: str) -> None:
    """Show that there was nothing to do."""
    create_markdown_artifact(text, key="skipped", description="Nothing changed")


def show_night(said: Sequence[str]) -> None:
    """Show what a nightly run found at the sources and committed."""
    if said:
        text = "\n".join(f"* {line}" for line in said)
        create_markdown_artifact(text, key="nightly", description="The sources, and the commit")


def show_results(text: str) -> None:
    """Show the test metrics, as at the end of every run."""
    create_markdown_artifact(text, key="results", description="Test metrics beside their baselines")


def show_decisions(root: Path) -> None:
    """Show which versions became champion and why, the newest first."""
    if rows := decisions.rows(root):
        create_table_artifact(
            decision_rows(rows), key="decisions", description="Which versions became champion, and why"
        )


def show_links(root: Path) -> None:
    """Link MLflow's pages: the experiment, the comparison, each model's run."""
    try:
        links = mlflow_links(root)
    except LexmillError as error:
        get_run_logger().warning("no links to MLflow: %s", error)
        return
    for link in links:
        create_link_artifact(link.url, link.text, key=f"mlflow-{slug(link.name)}", description=link.text)


@dataclass
class _Progress:
    """The progress of a stage; `sent` is what the page shows."""

    task_run: UUID
    flow_run: UUID
    percent: float
    text: str
    artifact: UUID | None = None
    sent: tuple[float, str] | None = None


class ProgressBoard:
    """A progress artifact per stage, updated every few seconds by a thread: a slow server must not block a stage."""

    def __init__(self, client: Callable[[], SyncPrefectClient] | None = None) -> None:
        self._stages: dict[str, _Progress] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._client = client or (lambda: get_client(sync_client=True))
        self._thread = threading.Thread(target=self._work, name="progress", daemon=True)

    def __enter__(self) -> ProgressBoard:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        self._thread.join(timeout=PROGRESS_SECONDS)

    def record(self, stage: str, data: dict[str, Any], *, task_run: UUID, flow_run: UUID, seconds: float) -> None:
        """Update a stage's progress; work of unknown length is not shown."""
        if not data["total"]:
            return
        percent = min(100.0 * data["done"] / data["total"], 100.0)
        text = line_text(data["description"], data["done"], data["total"], data["shown"], seconds)
        with self._lock:
            known = self._stages.get(stage)
            if known is None:
                self._stages[stage] = _Progress(task_run, flow_run, percent, text)
            else:
                known.percent, known.text = percent, text

    def end(self, outcome: Outcome) -> None:
        """End a stage; a bar that the server has seen shows how it ended."""
        with self._lock:
            known = self._stages.get(outcome.stage)
            if known is None or known.artifact is None:
                self._stages.pop(outcome.stage, None)
                return
            known.percent = 100.0 if outcome.code == 0 else known.percent
            known.text = f"{outcome.stage}: {outcome.state}; {known.text}"

    def _work(self) -> None:
        with self._client() as client:
            ended = False
            while not ended:
                ended = self._ended.wait(PROGRESS_SECONDS)
                with self._lock:
                    news = [(name, one) for name, one in self._stages.items() if one.sent != (one.percent, one.text)]
                for name, one in news:
                    try:
                        self._tell(client, name, one)
                    except HTTPError:
                        break  # the server is away: the next round sends the latest

    def _tell(self, client: SyncPrefectClient, stage: str, one: _Progress) -> None:
        percent, text = one.percent, one.text
        if one.artifact is None:
            made = ArtifactCreate(
                key=f"progress-{slug(stage)}",
                type="progress",
                description=text,
                data=percent,
                flow_run_id=one.flow_run,
                task_run_id=one.task_run,
            )
            one.artifact = client.create_artifact(made).id
        else:
            client.update_artifact(one.artifact, ArtifactUpdate(description=text, data=percent))
        one.sent = (percent, text)
