"""`lexmill publish`: every package becomes one MLflow run and one registered model version, once.

A package is known by its fingerprint, which tags the run and the version. So publishing again does nothing (without
even importing MLflow for a local store), a result that was restored from the cache or pulled is linked to what is
there, and a publish that was killed is finished by the next: a version that carries a decision is complete; one
without is decided; a run without a version is filled again and registered.

Order for one package: run, model files, version, decision file, champion alias, decision tag. Two publishes of one
workspace or one local store wait for each other.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version as installed
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexmill import layout, storage
from lexmill.errors import UserError
from lexmill.evaluation.bootstrap import Resampling
from lexmill.evaluation.rows import read_rows
from lexmill.execution import Execution
from lexmill.models.folder import WEIGHTS
from lexmill.params import Params
from lexmill.registry import lookup, package, record
from lexmill.registry.kinds import KINDS
from lexmill.registry.lookup import CHAMPION, DECISION, FINGERPRINT, KIND, Found
from lexmill.registry.predictor import defaults
from lexmill.registry.promotion import Decision, decide
from lexmill.tracking import points, store
from lexmill.tracking.links import base_url, compare_url, experiment_url
from lexmill.tracking.store import locked, opened, sqlite_path

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel, Run
    from mlflow.models import ModelSignature
    from mlflow.types import ParamSpec

LOADER = "lexmill.registry.loader"
_RUNS_ON = ("torch", "tokenizers", "safetensors", "numpy", "transformers", "pyyaml")


@dataclass(frozen=True)
class Outcome:
    """What became of one package.

    `created` tells whether this call made the version; `champion` whether the version holds the alias now.
    """

    name: str
    kind: str
    version: str
    created: bool
    champion: bool
    reason: str
    run_id: str

    @property
    def sentence(self) -> str:
        """One line for people."""
        if not self.created:
            return f"{self.name}: already version {self.version}{' (champion)' if self.champion else ''}"
        place = "is the champion" if self.champion else "stays beside the champion"
        return f"{self.name}: version {self.version} {place}: {self.reason}"


def publish_all(
    params: Params, execution: Execution, say: Callable[[str], None], root: str | Path = "."
) -> list[Outcome]:
    """Publish the package of every model of params.yaml that has one; those published before are left alone.

    Args:
        params: the choices: which models, the experiment's name, the rule of promotion.
        execution: `tracking_uri` is used.
        say: told one line a model, and the addresses of the pages.
        root: the workspace.

    Raises:
        UserError: there is no package, or one was changed after it was made.
        RetryableError: the tracking server does not answer; what was sent stays and the next call sends the rest.
    """
    root, uri = Path(root), execution.tracking_uri
    folders = {name: root / layout.package(name) for name in params.model_names}
    packages = {name: package.read(folder) for name, folder in folders.items() if folder.is_dir()}
    if not packages:
        raise UserError("there is no package to publish; `lexmill run` makes them")
    for name in folders.keys() - packages.keys():
        say(f"{name}: no package yet; `lexmill run` makes it")
    if sqlite_path(uri, root) is not None:
        outcomes = {name: _already(uri, description, root) for name, description in packages.items()}
        if all(outcomes.values()):
            done = [outcome for outcome in outcomes.values() if outcome is not None]
            for outcome in done:
                say(outcome.sentence)
            return done
    with _only_one(uri, root), opened(uri, root) as client:
        experiment_id = store.experiment_id(client, params.experiment, sqlite_path(uri, root))
        outcomes = {}
        published = []
        for name in packages:
            outcome = _publish(client, params, folders[name], experiment_id, root)
            say(outcome.sentence)
            published.append(outcome)
    base = base_url(uri)
    say(f"runs: {experiment_url(base, experiment_id)}")
    if len(published) > 1:
        say(f"side by side: {compare_url(base, experiment_id, [outcome.run_id for outcome in published])}")
    return published


def _only_one(uri: str, root: Path) -> Any:
    path = sqlite_path(uri, root)
    return locked(root / ".lexmill" / "publish.lock" if path is None else path.with_name(f".{path.name}.publish.lock"))


def _already(uri: str, description: dict[str, Any], root: Path) -> Outcome | None:
    """The outcome for a package that a local store holds complete."""
    found = lookup.published(uri, description["name"], description["fingerprint"], root)
    if found is None or not found.decision or _unsent(description, root) is not None:
        return None
    return _outcome_of(found, lookup.champion(uri, description["name"], root), description["kind"])


def _unsent(description: dict[str, Any], root: Path) -> Path | None:
    """The points of the packaged model's training, where they are in this workspace and not all sent."""
    path = points.file_of(KINDS[description["kind"]].trained_by, description["name"], root)
    made = points.weights_of(path)
    if made is None or points.complete(path):
        return None
    weights = root / layout.package(description["name"]) / package.MODEL / WEIGHTS
    return path if made == storage.sha256_file(weights) else None


def _outcome_of(found: Found, champion: Found | None, kind: str) -> Outcome:
    return Outcome(
        name=found.name,
        kind=kind,
        version=found.version,
        created=False,
        champion=champion is not None and champion.version == found.version,
        reason=found.decision,
        run_id=found.run_id,
    )


def _publish(client: MlflowClient, params: Params, folder: Path, experiment_id: str, root: Path) -> Outcome:
    description = package.verify(folder)
    name, kind = description["name"], description["kind"]
    found = lookup.client_published(client, name, description["fingerprint"])
    if (unsent := _unsent(description, root)) is not None:
        with locked(points.lock_of(unsent)):
            points.Delivery(client, experiment_id, unsent, name, into=found.run_id if found else "").send()
    if found is not None and found.decision:
        return _outcome_of(found, lookup.client_champion(client, name), kind)
    if found is None:
        weights = storage.sha256_file(folder / package.MODEL / WEIGHTS)
        run = record.find_or_start(client, experiment_id, description, weights)
        record.fill(client, run, folder, description, root)
        model = _log_model(client, run, folder, description, root)
        found = _register(client, run, model, description)
    decision = _decide(client, params, folder, description, found)
    record.log_json(client, found.run_id, {"version": found.version, **decision.plain()}, "decision.json")
    if decision.promote:
        client.set_registered_model_alias(name, CHAMPION, found.version)
    client.set_terminated(found.run_id, "FINISHED")
    client.set_model_version_tag(name, found.version, DECISION, f"{decision.word}: {decision.reason}")
    return Outcome(
        name=name,
        kind=kind,
        version=found.version,
        created=True,
        champion=decision.promote,
        reason=decision.reason,
        run_id=found.run_id,
    )


def _log_model(client: MlflowClient, run: Run, folder: Path, description: dict[str, Any], root: Path) -> LoggedModel:
    """The package as an MLflow model of the run: the one that is complete already, or a new one."""
    from mlflow.entities import LoggedModelOutput, LoggedModelStatus

    fingerprint, ready = description["fingerprint"], None
    for model in client.search_logged_models([run.info.experiment_id], f"tags.`{FINGERPRINT}` = '{fingerprint}'"):
        if model.status == LoggedModelStatus.READY and model.source_run_id == run.info.run_id:
            ready = model
        else:
            client.delete_logged_model(model.model_id)  # half made
    if ready is None:
        ready = _make_model(client, run, folder, description, root)
    outputs = run.outputs.model_outputs if run.outputs else []
    if all(output.model_id != ready.model_id for output in outputs):
        client.log_outputs(run.info.run_id, [LoggedModelOutput(ready.model_id, 0)])
    return ready


def _make_model(client: MlflowClient, run: Run, folder: Path, description: dict[str, Any], root: Path) -> LoggedModel:
    """Data only, to be loaded by `lexmill.registry.loader`."""
    import mlflow.pyfunc
    from mlflow.entities import LoggedModelStatus
    from mlflow.models import Model

    model = client.create_logged_model(
        run.info.experiment_id,
        name=description["name"],
        source_run_id=run.info.run_id,
        tags={FINGERPRINT: description["fingerprint"]},
        model_type=description["kind"],
    )
    about = Model(
        artifact_path=model.artifact_location,
        model_uuid=model.model_id,
        run_id=run.info.run_id,
        model_id=model.model_id,
    )
    beside = root / ".lexmill" / "publishing"
    shutil.rmtree(beside, ignore_errors=True)  # of a publish that was killed
    try:
        mlflow.pyfunc.save_model(
            str(beside),
            loader_module=LOADER,
            data_path=str(folder),
            mlflow_model=about,
            signature=signature(description),
            input_example=description["example"]["input"] or [""],
            pip_requirements=requirements(),
        )
        client.log_model_artifacts(model.model_id, str(beside))
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)


def signature(description: dict[str, Any]) -> ModelSignature:
    """Texts in; texts, or labels with their scores, out; and the params that `predict` takes, with their defaults."""
    from mlflow.models import ModelSignature, infer_signature
    from mlflow.types import ParamSchema

    outputs: list[Any] = [""]
    if description["kind"] == "classifier":
        outputs = [{"label": "", "score": 0.5, "scores": dict.fromkeys(description["config"]["labels"], 0.5)}]
    found = infer_signature([""], outputs)
    params = [_param(name, value) for name, value in defaults(description).items()]
    return ModelSignature(found.inputs, found.outputs, ParamSchema(params)) if params else found


def _param(name: str, default: Any) -> ParamSpec:
    """A param of `predict`, told explicitly: of an empty list MLflow cannot infer what it would hold."""
    from mlflow.types import ParamSpec

    if isinstance(default, list):
        return ParamSpec(name, "string", default, shape=(-1,))
    return ParamSpec(name, {int: "long", float: "double"}[type(default)], default)


def requirements() -> list[str]:
    """The packages that a model runs on beside lexmill, at the versions installed here (a build's `+cpu` left out)."""
    return [f"{name}=={installed(name).partition('+')[0]}" for name in _RUNS_ON]


def _register(client: MlflowClient, run: Run, model: LoggedModel, description: dict[str, Any]) -> Found:
    from mlflow.exceptions import MlflowException

    name = description["name"]
    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    version = client.create_model_version(
        name,
        source=f"models:/{model.model_id}",
        run_id=run.info.run_id,
        tags={
            FINGERPRINT: description["fingerprint"],
            KIND: description["kind"],
            "lexmill.test_sha256": description["test_corpus"]["sha256"],
        },
        model_id=model.model_id,
    )
    return Found(name, str(version.version), run.info.run_id, description["fingerprint"], description["kind"], "")


def _decide(client: MlflowClient, params: Params, folder: Path, description: dict[str, Any], found: Found) -> Decision:
    champion = lookup.client_champion(client, found.name)
    if champion is None:
        return Decision(True, "the first version" if found.version == "1" else "no version was champion")
    if champion.version == found.version:
        return Decision(True, "it was made champion before the publishing was interrupted")
    if champion.kind != description["kind"]:
        return Decision(
            False,
            f"version {champion.version} is {champion.kind or 'no model of ours'}, this one {description['kind']};"
            " give it another name or set the alias by hand",
        )
    theirs = _rows(champion)
    if theirs is None:
        return Decision(False, f"version {champion.version} has no test rows to compare with; set the alias by hand")
    evaluation = params.evaluation
    return decide(
        description["kind"],
        read_rows(folder / package.ROWS),
        theirs,
        champion_version=champion.version,
        rule=params.promotion,
        resampling=Resampling(evaluation.bootstrap_samples, evaluation.confidence, params.data_seed),
    )


def _rows(version: Found) -> list[dict[str, Any]] | None:
    """The test rows in a version's package; None when it has none."""
    from mlflow.artifacts import download_artifacts, list_artifacts

    inside = f"models:/{version.name}/{version.version}/data/{version.name}"
    if not any(Path(entry.path).name == package.ROWS for entry in list_artifacts(artifact_uri=inside)):
        return None
    with tempfile.TemporaryDirectory() as folder:
        return read_rows(download_artifacts(artifact_uri=f"{inside}/{package.ROWS}", dst_path=folder))
