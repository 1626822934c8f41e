"""MLflow fails at one request of a publish or a sync, whichever: the next completes it, and nothing is there twice."""

from __future__ import annotations

import dataclasses
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from mlflow import MlflowClient

from lexmill.base import layout
from lexmill.base.errors import RetryableError, UserError
from lexmill.compute.execution import Execution
from lexmill.params import Params, parse
from lexmill.registry import decisions, package, trial
from lexmill.registry.publish import publish_all
from lexmill.tracking import spool
from tests.registry.conftest import make
from tests.registry.plain import plain_params
from tests.tracking.conftest import Server, serving
from tests.tracking.test_spool import assert_all_there_once, send, spool_of

from .proxy import Proxy

MODEL = "gpt"
FAULTS = ("reset", "500", "429", "401", "lose", "cut", "hang")


@pytest.fixture(autouse=True)
def _untimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """No trial of speed."""
    monkeypatch.setattr(trial, "times", lambda *_: {"champion": [0.01], "challenger": [0.01]})


@contextmanager
def failing(proxy: Proxy, fault: str, at: int) -> Iterator[None]:
    """One request fails; one that is never answered is not waited for as long as usual."""
    with pytest.MonkeyPatch.context() as patched:
        if fault == "hang":
            patched.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "3")
        proxy.fail(fault, at)
        yield
    assert proxy.injected == 1
    proxy.heal()


@pytest.fixture(scope="module")
def choices() -> Params:
    whole = parse(plain_params())
    return dataclasses.replace(whole, models={MODEL: whole.models[MODEL]})


@pytest.fixture(scope="module")
def packaged(choices: Params, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with the package of one model."""
    root = tmp_path_factory.mktemp("packaged")
    make(choices, root, MODEL)
    package.write(choices, MODEL, root)
    return root


@pytest.fixture(scope="module")
def server(empty_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(empty_store, tmp_path_factory.mktemp("mlflow")) as made:
        made.answers("ok")
        yield made


@pytest.fixture(scope="module")
def proxy(server: Server) -> Iterator[Proxy]:
    with Proxy(("127.0.0.1", int(server.uri.rpartition(":")[2]))) as made:
        yield made


class Publishing:
    """Publishes one package into one experiment after the other, through the proxy."""

    def __init__(self, choices: Params, packaged: Path, proxy: Proxy, server: Server) -> None:
        self._choices, self.root, self.proxy, self._server = choices, packaged, proxy, server
        self.client = MlflowClient(server.uri, server.uri)

    def begin(self, experiment: str) -> None:
        """A registry without the model, and an experiment without runs."""
        for known in self.client.search_registered_models():
            self.client.delete_registered_model(known.name)
        shutil.rmtree(self.root / decisions.FOLDER, ignore_errors=True)
        self._choices = dataclasses.replace(self._choices, experiment=experiment)

    def publish(self) -> None:
        execution = Execution(tracking_uri=f"http://me:hush@127.0.0.1:{self.proxy.port}")
        publish_all(self._choices, execution, lambda _: None, self.root)

    def assert_all_there_once(self) -> None:
        experiment = self.client.get_experiment_by_name(self._choices.experiment)
        assert experiment is not None
        (run,) = self.client.search_runs([experiment.experiment_id])
        (version,) = self.client.search_model_versions(f"name = '{MODEL}'")
        (model,) = self.client.search_logged_models([experiment.experiment_id])
        assert (version.run_id, version.source) == (run.info.run_id, f"models:/{model.model_id}")
        assert version.tags["lexmill.decision"].startswith("champion: ")
        assert self.client.get_model_version_by_alias(MODEL, "champion").version == version.version
        assert run.data.metrics["test/bits_per_byte"] == 2.5
        history = self.client.get_metric_history(run.info.run_id, "curves/train_loss")
        assert Counter((one.step, one.value) for one in history) == {(i, 5 / (i + 1)): 1 for i in range(10)}
        with open(self.root / layout.package(MODEL) / "model" / "model.safetensors", "rb") as kept:
            weights = kept.read()
        (brought,) = (self._server.root / "files").rglob(f"{model.model_id}/**/model.safetensors")
        assert brought.read_bytes() == weights


@pytest.fixture
def publishing(choices: Params, packaged: Path, proxy: Proxy, server: Server) -> Publishing:
    return Publishing(choices, packaged, proxy, server)


@pytest.fixture
def requests(publishing: Publishing) -> int:
    """How many requests a publish makes."""
    publishing.begin("undisturbed")
    publishing.proxy.heal()
    publishing.publish()
    publishing.assert_all_there_once()
    return publishing.proxy.seen


def fail_once(publishing: Publishing, fault: str, at: int) -> None:
    """One request fails: that publish says so, and the next one does the rest."""
    publishing.begin(f"{fault} at {at}")
    refused = pytest.raises(UserError if fault == "401" else RetryableError)
    with failing(publishing.proxy, fault, at), refused as failed:
        publishing.publish()
    assert publishing.proxy.url in str(failed.value)
    assert "hush" not in str(failed.value)
    publishing.publish()
    publishing.assert_all_there_once()


def test_a_publish_that_fails_at_one_request_is_completed_by_the_next(publishing: Publishing, requests: int) -> None:
    assert requests > 40
    for fault, at in zip(FAULTS, places(requests), strict=True):
        fail_once(publishing, fault, at)


@pytest.mark.torture
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("fault", FAULTS)
def test_whichever_request_of_a_publish_fails_the_next_completes_it(
    publishing: Publishing, requests: int, fault: str
) -> None:
    for at in range(2, requests + 1):
        fail_once(publishing, fault, at)


class Syncing:
    """Sends a run and its training from one workspace after the other, through the proxy."""

    def __init__(self, root: Path, proxy: Proxy, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        self._root, self.proxy, self._server, self._monkeypatch = root, proxy, server, monkeypatch

    def begin(self, experiment: str) -> Path:
        """A workspace where all of it waits."""
        root = self._root / experiment
        root.mkdir()
        spool_of(root, experiment, self._monkeypatch)
        return root

    def undisturbed(self, experiment: str = "undisturbed sync") -> int:
        """How many requests a sync makes."""
        root = self.begin(experiment)
        self.proxy.heal()
        send(root, self.proxy.url)
        assert_all_there_once(root, self._server.root, experiment)
        return self.proxy.seen

    def fail_once(self, fault: str, at: int) -> None:
        """One request fails: that sync says so, and the next one sends the rest."""
        experiment = f"sync {fault} at {at}"
        root = self.begin(experiment)
        refused = pytest.raises(UserError if fault == "401" else RetryableError)
        with failing(self.proxy, fault, at), refused:
            send(root, self.proxy.url)
        assert spool.waiting(root)
        send(root, self.proxy.url)
        assert_all_there_once(root, self._server.root, experiment)


@pytest.fixture
def syncing(tmp_path: Path, proxy: Proxy, server: Server, monkeypatch: pytest.MonkeyPatch) -> Syncing:
    return Syncing(tmp_path, proxy, server, monkeypatch)


def places(requests: int) -> list[int]:
    """A place for each fault, from the first call after the question of health to the last."""
    return [2 + round(i * (requests - 2) / (len(FAULTS) - 1)) for i in range(len(FAULTS))]


def test_a_sync_that_fails_at_one_request_is_completed_by_the_next(syncing: Syncing) -> None:
    requests = syncing.undisturbed()
    assert requests > 20
    for fault, at in zip(FAULTS, places(requests), strict=True):
        syncing.fail_once(fault, at)


@pytest.mark.torture
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("fault", FAULTS)
def test_whichever_request_of_a_sync_fails_the_next_sends_the_rest(syncing: Syncing, fault: str) -> None:
    for at in range(2, syncing.undisturbed(f"undisturbed sync before {fault}") + 1):  # the server is shared
        syncing.fail_once(fault, at)
