"""Log a package as an MLflow model (data only, loaded by `lexmill.registry.loader`) and register a version of it."""

from __future__ import annotations

import shutil
import warnings
from importlib.metadata import version as installed
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexmill import kinds
from lexmill.base import storage
from lexmill.registry import package
from lexmill.registry.lookup import KIND, TRAIN_DATA, Found
from lexmill.tracking.finding import FINGERPRINT, patient

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import LoggedModel, Run
    from mlflow.models import ModelSignature
    from mlflow.types import ParamSpec

LOADER = "lexmill.registry.loader"
_RUNS_ON = ("torch", "tokenizers", "safetensors", "numpy", "transformers", "pyyaml")


def log_model(client: MlflowClient, run: Run, folder: Path, description: dict[str, Any], root: Path) -> LoggedModel:
    """Return the run's MLflow model of the package: a complete one if there is one, or a new one."""
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
    scratch = root / ".lexmill" / "publishing"
    shutil.rmtree(scratch, ignore_errors=True)  # left by a killed publish
    try:
        mlflow.pyfunc.save_model(
            str(scratch),
            loader_module=LOADER,
            data_path=str(folder),
            mlflow_model=about,
            signature=signature(description),
            input_example=description["example"]["input"] or [""],
            pip_requirements=requirements(),
        )
        with patient(max(path.stat().st_size for path in scratch.rglob("*"))):
            client.log_model_artifacts(model.model_id, str(scratch))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)


def signature(description: dict[str, Any]) -> ModelSignature:
    """Return the signature: the kind's outputs, and the params of `predict` with their defaults.

    Inputs are left to `served.as_texts`: MLflow's own check takes the first of two columns, and converts a number or
    null to text.
    """
    from mlflow.models import ModelSignature, infer_signature
    from mlflow.types import ParamSchema

    answering, config = kinds.find(description["kind"]).module("predict").Predictor, description["config"]
    params = [_param(name, value) for name, value in answering.params(config).items()]
    with warnings.catch_warnings():
        # Whole numbers in an answer are never missing, and so never turned into floats, of which MLflow warns.
        warnings.filterwarnings("ignore", message=".*integer column")
        found = infer_signature([""], [answering.example(config)]).outputs
    return ModelSignature(outputs=found, params=ParamSchema(params)) if params else ModelSignature(outputs=found)


def _param(name: str, default: Any) -> ParamSpec:
    """Return an explicit param of `predict`, for MLflow cannot infer the type of an empty list."""
    from mlflow.types import ParamSpec

    if isinstance(default, list):
        return ParamSpec(name, "string", default, shape=(-1,))
    return ParamSpec(name, {int: "long", float: "double", str: "string", bool: "boolean"}[type(default)], default)


def requirements() -> list[str]:
    """Return the packages that a model needs besides lexmill, at the installed versions (without a build's `+cpu`)."""
    return [f"{name}=={installed(name).partition('+')[0]}" for name in _RUNS_ON]


def register(client: MlflowClient, run: Run, model: LoggedModel, description: dict[str, Any], about: str) -> Found:
    """Create a version of the package's registered model, and the model if needed; `about` is for its page."""
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
            "lexmill.test_sha256": package.test_sha256(description),
            TRAIN_DATA: storage.fingerprint(description["train_corpora"]),
        },
        model_id=model.model_id,
        description=about,
    )
    return Found(name, str(version.version), run.info.run_id, description["fingerprint"], description["kind"], "")
