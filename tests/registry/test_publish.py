"""Publishing to a real MLflow store: once, complete, and the alias moves only for a better one."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlflow
import pytest
from mlflow import MlflowClient
from mlflow.artifacts import download_artifacts

from lexmill.base import layout, storage
from lexmill.base.errors import RetryableError, UserError
from lexmill.compute.execution import Execution
from lexmill.params import Params
from lexmill.registry import deciding, logged_model, lookup, package, record
from lexmill.registry.publish import publish_all
from lexmill.tracking import store

from .conftest import make, publish_model

URI = "sqlite:///mlflow.db"


def _client(root: Path) -> MlflowClient:
    uri = store.absolute_uri(URI, root)
    return MlflowClient(uri, uri)


def _versions(root: Path, name: str) -> dict[str, str]:
    """Each version's decision."""
    found = _client(root).search_model_versions(f"name = '{name}'")
    return {str(v.version): v.tags.get("lexmill.decision", "") for v in found}


def _champion(root: Path, name: str) -> str:
    return str(_client(root).get_model_version_by_alias(name, "champion").version)


def _runs(root: Path) -> list[Any]:
    client = _client(root)
    return list(client.search_runs([e.experiment_id for e in client.search_experiments()]))


def test_a_run_holds_what_its_model_was_made_from(published: tuple[Path, list[str]]) -> None:
    root, said = published
    client = _client(root)
    runs = {run.info.run_name: run for run in _runs(root)}
    assert set(runs) == {"gpt", "tickets", "en_de"}
    run = runs["en_de"]
    assert run.info.status == "FINISHED"
    assert run.data.params["model.shape.d_model"] == "16"
    assert run.data.params["training_seed"] == "2"
    assert run.data.metrics["test/bleu"] == 20.5
    assert run.data.metrics["train/train_loss"] == 1.5
    assert runs["gpt"].data.metrics["baseline.byte_trigram/bits_per_byte"] == 2.9
    assert runs["tickets"].data.metrics["test/billing as other"] == 3
    history = client.get_metric_history(run.info.run_id, "curves/train_loss")
    assert [(point.step, point.value) for point in history] == [(i, 5 / (i + 1)) for i in range(10)]
    assert [p.step for p in client.get_metric_history(run.info.run_id, "curves/valid_loss")] == [0, 5]
    tags = run.data.tags
    assert tags["lexmill.fingerprint"] == package.read(root / "artifacts/packages/en_de")["fingerprint"]
    assert tags["lexmill.stage"] == "train@en_de"
    assert tags["test/bleu_signature"] == "nrefs:1|case:mixed"
    assert len(tags["lexmill.corpus_manifest"]) == len(tags["lexmill.tokenizer"]) == 64
    assert tags["mlflow.note.content"].startswith("# en_de")
    assert [entry.dataset.name for entry in run.inputs.dataset_inputs] == ["pairs"]
    names = {entry.path for entry in client.list_artifacts(run.info.run_id)}
    files = {"card.md", "decision.json", "decisions.json", "metrics.json", "params.json", "reproduce.sh"}
    assert names == files | {"curves", "plots", "samples"}
    assert [entry.path for entry in client.list_artifacts(run.info.run_id, "plots")] == ["plots/figure.png"]
    assert said[0] == "gpt: version 1 is the champion: the first version"
    assert "workflowType=machine_learning" in said[3]
    assert all(run.info.run_id in said[4] for run in runs.values())


_FRESH = """
import json, sys, mlflow
mlflow.set_tracking_uri(sys.argv[1])
load = lambda name: mlflow.pyfunc.load_model(f"models:/{name}@champion")
gpt, tickets, en_de = load("gpt"), load("tickets"), load("en_de")
answers = {
    "gpt": gpt.predict(["ROMEO", ""], params={"max_tokens": 5, "seed": 3, "stop": ["never"], "min_p": 0.0}),
    "again": gpt.predict(["ROMEO", ""], params={"max_tokens": 5, "seed": 3}),
    "tickets": tickets.predict(["my bill", ""]),
    "en_de": en_de.predict(["Good day", "", "Bye"]),
    "greedy": en_de.predict(["Good day", "", "Bye"], params={"beam_size": 1}),
    "schema": str(gpt.metadata.signature.params) + str(tickets.metadata.signature.outputs),
    "example": en_de.input_example,
    "code": [m.metadata.flavors["python_function"].get("code") for m in (gpt, tickets, en_de)],
}
print(json.dumps(answers))
"""


def test_the_champions_answer_in_a_fresh_process(published: tuple[Path, list[str]], tmp_path: Path) -> None:
    root, _ = published
    done = subprocess.run(
        [sys.executable, "-c", _FRESH, store.absolute_uri(URI, root)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    answers = json.loads(done.stdout.strip().split("\n")[-1])
    assert len(answers["gpt"]) == 2
    assert all(isinstance(text, str) for text in answers["gpt"])
    assert answers["again"] == answers["gpt"]
    for answer in answers["tickets"]:
        assert answer["label"] in ("billing", "other")
        assert answer["score"] == answer["scores"][answer["label"]] == max(answer["scores"].values())
        assert sum(answer["scores"].values()) == pytest.approx(1)
    assert len(answers["tickets"]) == 2
    assert [bool(text) or not source for text, source in zip(answers["en_de"], ["Good day", "", "Bye"], strict=True)]
    assert answers["en_de"][1] == answers["greedy"][1] == ""
    for part in (
        "max_tokens",
        "temperature",
        "top_k",
        "top_p",
        "min_p",
        "repetition_penalty",
        "'stop': string (default: []) (shape: (-1,))",
        "seed",
        "label",
        "score",
        "billing",
    ):
        assert part in answers["schema"]
    assert answers["example"] == ["Good day"]
    assert answers["code"] == [None, None, None]  # data only


def test_the_quick_look_and_mlflows_client_see_the_same(published: tuple[Path, list[str]]) -> None:
    root, _ = published
    client = _client(root)
    for name in ("gpt", "tickets", "en_de", "nobody"):
        found = lookup.champion(URI, name, root)
        assert found == lookup.client_champion(client, name)
        assert (found is None) == (name == "nobody")
        for fingerprint in (found.fingerprint if found else "", "another"):
            quick = lookup.published(URI, name, fingerprint, root)
            assert quick == lookup.client_published(client, name, fingerprint)
            assert quick == (found if found and fingerprint == found.fingerprint else None)


def test_the_alias_follows_the_better_one_only(params: Params, root: Path) -> None:
    """First, worse, tie, better, then the first again as the cache would restore it."""
    (first,) = publish_model(params, root, "en_de", 0.5, seed=0)
    assert (first.version, first.champion, first.created) == ("1", True, True)

    (worse,) = publish_model(params, root, "en_de", 0.1, seed=1)
    assert (worse.version, worse.champion) == ("2", False)
    assert worse.reason.startswith("worse: bleu")
    assert _champion(root, "en_de") == "1"

    make(params, root, "en_de", 0.5, seed=0)  # the champion's rows
    rows = (root / "artifacts/predictions/en_de/rows.jsonl").read_bytes()
    make(params, root, "en_de", 0.5, seed=2)  # and other weights
    (root / "artifacts/predictions/en_de/rows.jsonl").write_bytes(rows)
    package.write(params, "en_de", root)
    (tie,) = publish_all(params, Execution(), lambda _: None, root)
    assert (tie.version, tie.champion) == ("3", False)
    assert tie.reason.startswith("no better: bleu")
    assert _champion(root, "en_de") == "1"

    (better,) = publish_model(params, root, "en_de", 0.9, seed=3)
    assert (better.version, better.champion) == ("4", True)
    assert "of version 1" in better.reason
    assert _champion(root, "en_de") == "4"

    (restored,) = publish_model(params, root, "en_de", 0.5, seed=0)
    assert (restored.version, restored.created, restored.champion) == ("1", False, False)
    assert restored.sentence == "en_de: already version 1"
    assert _champion(root, "en_de") == "4"

    decisions = _versions(root, "en_de")
    assert [decisions[v].split(":")[0] for v in "1234"] == ["champion", "stays", "stays", "champion"]
    client = _client(root)
    assert len(_runs(root)) == 4
    path = download_artifacts(run_id=better.run_id, artifact_path="decision.json", tracking_uri=client.tracking_uri)
    logged = json.loads(Path(path).read_text())
    assert (logged["version"], logged["promote"], logged["comparison"]["metric"]) == ("4", True, "bleu")
    assert logged["comparison"]["p_value"] < 0.05


def test_publishing_again_does_nothing_and_does_not_even_look_into_mlflow(
    published: tuple[Path, list[str]], params: Params, execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, _ = published

    def never(*_: object) -> None:
        raise AssertionError("MLflow was opened")

    monkeypatch.setattr(deciding, "opened", never)
    monkeypatch.setattr(lookup, "opened", never)
    said: list[str] = []
    outcomes = publish_all(params, execution, said.append, root)
    assert [(o.version, o.created, o.champion) for o in outcomes] == [("1", False, True)] * 3
    assert said == [f"{name}: already version 1 (champion)" for name in ("gpt", "tickets", "en_de")]
    assert len(_runs(root)) == 3


class _Killed(BaseException):
    """Stands for the end of the process at this point."""


def _killer(monkeypatch: pytest.MonkeyPatch, where: Any, name: str) -> Callable[[], None]:
    original = getattr(where, name)

    def killed(*_: object, **__: object) -> None:
        raise _Killed

    monkeypatch.setattr(where, name, killed)
    return lambda: monkeypatch.setattr(where, name, original)


@pytest.mark.parametrize(
    ("where", "name"),
    [
        (record, "_metrics"),  # a run with params only
        (MlflowClient, "log_model_artifacts"),  # a model without files
        (MlflowClient, "finalize_logged_model"),  # a model not marked ready
        (MlflowClient, "log_outputs"),  # a model that the run does not know
        (MlflowClient, "create_model_version"),  # no version
        (deciding, "compared"),  # a version without a decision
        (MlflowClient, "set_registered_model_alias"),  # a decision without its alias
        (MlflowClient, "set_model_version_tag"),  # an alias without the tag
    ],
)
def test_a_publish_that_was_killed_is_finished_by_the_next(
    where: Any, name: str, params: Params, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    execution = Execution(tracking_uri=URI)
    make(params, root, "en_de")
    package.write(params, "en_de", root)
    undo = _killer(monkeypatch, where, name)
    with pytest.raises(_Killed):
        publish_all(params, execution, lambda _: None, root)
    undo()
    (outcome,) = publish_all(params, execution, lambda _: None, root)
    assert (outcome.version, outcome.champion, outcome.created) == ("1", True, True)
    (run,) = _runs(root)
    assert (run.info.run_id, run.info.status, run.info.run_name) == (outcome.run_id, "FINISHED", "en_de")
    assert list(_versions(root, "en_de")) == ["1"]
    assert _champion(root, "en_de") == "1"
    client = _client(root)
    assert len(client.get_metric_history(run.info.run_id, "curves/train_loss")) == 10
    (model,) = client.search_logged_models([run.info.experiment_id])
    assert model.status == "READY"
    assert [output.model_id for output in client.get_run(run.info.run_id).outputs.model_outputs] == [model.model_id]
    (again,) = publish_all(params, execution, lambda _: None, root)
    assert not again.created


_PUBLISH = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from lexmill.compute.execution import Execution
from lexmill.params import parse
from lexmill.registry.publish import publish_all
from tests.registry.plain import plain_params
publish_all(parse(plain_params()), Execution(tracking_uri="sqlite:///mlflow.db"), print, Path(sys.argv[1]))
"""


def test_two_publishes_at_once_make_one_version(params: Params, root: Path) -> None:
    make(params, root, "gpt")
    package.write(params, "gpt", root)
    top = Path(__file__).parents[2]
    command = [sys.executable, "-c", _PUBLISH, str(root), str(top)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    message = [process.communicate() for process in started]
    assert [process.returncode for process in started] == [0, 0], message
    assert sorted(out.split("\n")[2].startswith("gpt: already") for out, _ in message) == [False, True]
    assert all(err == "" for _, err in message)  # none of the chatter of the parts below
    assert list(_versions(root, "gpt")) == ["1"]
    assert len(_runs(root)) == 1


def test_a_champion_that_was_not_made_here_stays(params: Params, root: Path, execution: Execution) -> None:
    client = _client(root)
    experiment = client.create_experiment("by hand", artifact_location=(root / "files").as_uri())
    run = client.create_run(experiment)
    client.create_registered_model("gpt")
    version = client.create_model_version("gpt", source=run.info.artifact_uri, run_id=run.info.run_id)
    client.set_registered_model_alias("gpt", "champion", version.version)
    (outcome,) = publish_model(params, root, "gpt", 0.5, seed=0)
    assert (outcome.version, outcome.champion) == ("2", False)
    assert "version 1 is no model of ours" in outcome.reason


def test_a_model_without_samples_is_published_all_the_same(
    params: Params, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no model is loaded in another process to find out which packages it needs: that takes MLflow 8 to 16 s."""

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("MLflow infers the packages")

    monkeypatch.setattr(mlflow.models, "infer_pip_requirements", never)
    make(params, root, "gpt")
    storage.write_json(root / layout.samples("gpt"), {"samples": []})
    package.write(params, "gpt", root)
    (outcome,) = publish_all(params, Execution(tracking_uri=URI), lambda _: None, root)
    assert outcome.champion
    (kept,) = (root / "mlruns").rglob("requirements.txt")
    needed = {line for line in kept.read_text(encoding="utf-8").split() if not line.startswith("mlflow==")}
    assert needed == set(logged_model.requirements())
    assert "An example" not in (root / layout.package("gpt") / "card.md").read_text()


def test_nothing_to_publish_and_a_package_changed_by_hand(params: Params, root: Path, execution: Execution) -> None:
    with pytest.raises(UserError, match="there is no package to publish; `lexmill run` makes them"):
        publish_all(params, execution, print, root)
    make(params, root, "gpt")
    folder = package.write(params, "gpt", root)
    (folder / "card.md").write_text("better than all others")
    with pytest.raises(UserError, match="changed after it was made"):
        publish_all(params, execution, lambda _: None, root)
    assert _runs(root) == []


def test_a_server_that_is_down_loses_nothing(params: Params, tmp_path: Path) -> None:
    make(params, tmp_path, "gpt")
    package.write(params, "gpt", tmp_path)
    with pytest.raises(RetryableError, match="nothing is lost"):
        publish_all(params, Execution(tracking_uri="http://127.0.0.1:9"), print, tmp_path)
