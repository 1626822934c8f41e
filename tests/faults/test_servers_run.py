"""A whole run whose MLflow server is away at its start, from its middle on, or at its end: the stages are done all the
same, one sentence says what waits, and the next run sends it once.

Not part of `make test`: `make torture`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient

from lexmill.base.errors import EXIT_RETRY, EXIT_USER
from lexmill.runner.record import records
from lexmill.tracking import spool
from tests.faults.conftest import EVERY_STEP, Case
from tests.faults.outcome import assert_nothing_held, assert_runs_closed, contents, doubled, models
from tests.faults.proxy import Proxy
from tests.faults.test_each_stage import forget
from tests.faults.victim import Victim
from tests.tracking.conftest import Server, serving

pytestmark = [pytest.mark.e2e, pytest.mark.torture, pytest.mark.timeout(1200)]

RUN = ("-m", "lexmill.cli", "run")
MODELS = {"en_de", "gpt", "lstm", "sentiment"}
MOMENTS = {"its start": "", "its middle": "train@gpt: done", "its end": "stages: "}  # once the run has said that


@pytest.fixture
def server(empty_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(empty_store, tmp_path_factory.mktemp("mlflow")) as made:
        made.answers("ok")
        yield made


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("fault", ["down", "hang", "401", "429", "500", "lose"])
def test_mlflow_is_away_for_a_part_of_a_run(fault: str, moment: str, finished: Case, server: Server) -> None:
    project, root = finished.project, finished.root
    before = {record.token for record in records(root)}
    for stage in ("train@gpt", "evaluate@gpt", "train@lstm"):
        forget(root, stage)
    with Proxy(("127.0.0.1", int(server.uri.rpartition(":")[2]))) as proxy:
        settings = f"{EVERY_STEP}tracking_uri: http://127.0.0.1:{proxy.port}\n"
        Path(project.environment["LEXMILL_EXECUTION"]).write_text(settings)
        if moment == "its start":
            proxy.fail(fault)
        run = Victim(project, *RUN)
        while run.running and MOMENTS[moment] not in run.said():
            time.sleep(0.05)
        proxy.fail(fault)
        code = run.wait_until_gone(300)
        finished.did(f"MLflow away from {moment} on, {fault}")
        assert "Traceback" not in run.said()
        # Where nothing is there to publish into, the run is done, and says what waits.
        assert code == (EXIT_USER if fault == "401" else EXIT_RETRY) or "not published" in run.said(), run.said()
        assert contents(root) == contents(finished.undisturbed.root), run.said()
        proxy.heal()
        again = Victim(project, *RUN)
        assert again.wait_until_gone(300) == 0, again.said()
    assert "unchanged, nothing to run" in again.said()
    assert not spool.waiting(root)
    client = MlflowClient(server.uri, server.uri)
    found = models(client)
    assert set(found) == MODELS
    assert sorted(version.name for version in client.search_model_versions()) == sorted(MODELS)
    for name in ("gpt", "lstm"):
        assert doubled(client, found[name]) == []
    assert_runs_closed(client, root, before)
    assert_nothing_held(project, run, again)
