"""One MLflow run of one model: params, curves, metrics, pictures, samples, what it was made from.

Everything here may be done twice with the same result: params, tags and points that are already there stay, files are
written over. So a run that a kill left half made is finished by doing it all again.

Cost: one call a thousand points and a hundred params, and the files.
"""

from __future__ import annotations

import csv
import json
import math
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexmill.base import checkout, layout, storage
from lexmill.base.cutting import beginning, cut
from lexmill.corpora.identity import MEASURED_ON
from lexmill.registry import package
from lexmill.registry.card import table
from lexmill.registry.lookup import KIND
from lexmill.registry.reproduce import KEPT, SCRIPT, Recipe
from lexmill.report.measured import stale_splits
from lexmill.tracking import points
from lexmill.tracking.finding import FINGERPRINT, make, model_tags
from lexmill.tracking.names import entity_name, leaves, metric_name, with_few_classes

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Run

_MOST_PARAMS = 100
_LONGEST_PARAM = 6000
_LONGEST_NOTE = 5000


def find_or_start(client: MlflowClient, experiment_id: str, description: Mapping[str, Any], weights: str) -> Run:
    """Return the run of this package.

    The one with its fingerprint; else that of the training that made its weights, if no other package has it; else a
    new one, named after the model.

    Args:
        weights: the hash of the package's weights.
    """
    from mlflow.entities import RunTag

    fingerprint = description["fingerprint"]
    ours = {FINGERPRINT: fingerprint, KIND: description["kind"]}
    for run in _runs(client, experiment_id, FINGERPRINT, fingerprint):
        return client.get_run(run.info.run_id)  # a search omits inputs and outputs
    for run in _runs(client, experiment_id, points.WEIGHTS, weights):
        if FINGERPRINT not in run.data.tags:
            client.log_batch(run.info.run_id, tags=[RunTag(key, value) for key, value in ours.items()])
            return client.get_run(run.info.run_id)
    return make(client, experiment_id, description["name"], int(1000 * time.time()), ours)


def run_of_model(client: MlflowClient, experiment_id: str, name: str, root: Path) -> str | None:
    """Return the run of a model: of its package if it holds the newest metrics, else of its training, else None."""
    try:
        description = storage.read_json(root / layout.package(name) / "package.json")
        metrics = storage.read_json(root / layout.metrics("evaluate", name))
    except (OSError, ValueError, KeyError):
        description = metrics = None
    if description and description["metrics"]["test"] == metrics["test"]:
        for run in _runs(client, experiment_id, FINGERPRINT, description["fingerprint"]):
            return str(run.info.run_id)
    weights = points.weights_of(points.file_of("train", name, root))
    for run in _runs(client, experiment_id, points.WEIGHTS, weights) if weights else ():
        return str(run.info.run_id)
    return None


def _runs(client: MlflowClient, experiment_id: str, tag: str, value: str) -> Sequence[Run]:
    """Return the runs with a tag, the oldest first."""
    oldest_first = ["attributes.start_time ASC"]
    found: Sequence[Run] = client.search_runs([experiment_id], f"tags.`{tag}` = '{value}'", order_by=oldest_first)
    return found


def fill(client: MlflowClient, run: Run, folder: Path, description: Mapping[str, Any], root: Path) -> None:
    """Log everything about a packaged model to its run.

    Args:
        folder: the package.
        description: its package.json.
        root: the workspace, for curves, pictures and samples.
    """
    from mlflow.entities import Metric, Param, RunTag

    run_id, name, start = run.info.run_id, description["name"], run.info.start_time
    shown = [(key, _shorten(value)) for key, value in sorted(table(description["params"]).items())]
    for part in _batches([Param(entity_name(key), value) for key, value in shown], _MOST_PARAMS):
        client.log_batch(run_id, params=part)
    metrics, words = _metrics(description["metrics"])
    measured = [Metric(key, value, start, 0) for key, value in metrics.items()]
    there = points.points_of(client, run)
    measured.extend(one for one in _curve(root / layout.curve(name), start) if (one.key, one.step) not in there)
    for part in _batches(measured, points.MOST_POINTS):
        client.log_batch(run_id, metrics=part)
    tags = {**_made_from(description, root), **words, "mlflow.note.content": _note(folder)}
    client.log_batch(run_id, tags=[RunTag(key, value) for key, value in tags.items()])
    _log_data(client, run, description)
    _log_files(client, run_id, folder, description, root)


def _batches(items: Sequence[Any], most: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), most):
        yield items[start : start + most]


def _shorten(value: Any) -> str:
    return cut(str(value), _LONGEST_PARAM)


def _metrics(metrics: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, str]]:
    """Return numbers as metrics (`test/bleu`, `test.mscoco/bleu`, `train/...`, `baseline.copy/bleu`), texts as tags."""
    metrics = with_few_classes(metrics)
    parts = {key: metrics[key] for key in ("test", "train", "per_class") if key in metrics}
    parts |= {f"test.{name}": entries for name, entries in metrics.get("tests", {}).items()}
    parts |= {f"baseline.{name}": entries for name, entries in metrics["baselines"].items()}
    numbers, words = {}, {}
    for part, entries in parts.items():
        for path, value in leaves(entries):
            name = metric_name((part, *path))
            if isinstance(value, int | float):
                numbers[name] = float(value)
            elif value is not None:
                words[name] = json.dumps(value, ensure_ascii=False) if isinstance(value, list) else str(value)
    return numbers, words


def _curve(path: Path, start: int) -> Iterator[Metric]:
    """Yield the points of a training curve (`curves/train_loss`, ...), without empty cells, at the run's start time."""
    from mlflow.entities import Metric

    if not path.is_file():
        return
    with open(path, encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            step = int(row["step"])
            for column, cell in row.items():
                value = float(cell) if column != "step" and cell else math.nan
                if cell and column != "step" and math.isfinite(value):
                    yield Metric(f"curves/{column}", value, start, step)


def _made_from(description: Mapping[str, Any], root: Path) -> dict[str, str]:
    """Return tags for the model's origin: code, lock file, and the corpus and tokenizer it was measured on."""
    config, metrics = description["config"], description["metrics"]
    corpus, measured_on = description["test_corpus"]["name"], metrics.get(MEASURED_ON, {})
    tags = {
        "lexmill.stage": f"train@{description['name']}",
        "lexmill.test_corpus": corpus,
        "lexmill.test_sha256": package.test_sha256(description),
        **model_tags(description["name"]),
    }
    for split, sha256 in measured_on.get("tests", {}).items():
        tags[entity_name(f"lexmill.test_sha256.{split}")] = sha256
    tokenizer = description["params"]["model"]["data"]["tokenizer"]
    tags["lexmill.stale"] = "true" if stale_splits(metrics, corpus, tokenizer, root) else "false"
    if metrics.get("not_compared"):
        tags["lexmill.not_compared"] = ", ".join(metrics["not_compared"])
    if fingerprint := measured_on.get("tokenizer") or config.get("tokenizer_fingerprint"):
        tags["lexmill.tokenizer"] = fingerprint
    if (state := checkout.dvc_lock_digest(root)) is not None:
        tags["lexmill.dvc_lock"] = state
    manifest = root / layout.corpus(corpus) / "manifest.json"
    if manifest.is_file():
        tags["lexmill.corpus_manifest"] = storage.sha256_file(manifest)
    return tags | git_state(root)


def git_state(root: Path) -> dict[str, str]:
    """Return the commit and whether the work tree differs from it; nothing outside a git repository."""
    state = checkout.state(root)
    if state is None:
        return {}
    return {"mlflow.source.git.commit": state.commit, "lexmill.git_dirty": "true" if state.dirty else "false"}


def _note(folder: Path) -> str:
    return beginning((folder / "card.md").read_text(encoding="utf-8"), _LONGEST_NOTE)


def _log_data(client: MlflowClient, run: Run, description: Mapping[str, Any]) -> None:
    from mlflow.entities import Dataset, DatasetInput, InputTag

    corpus, source = description["test_corpus"], description["params"]["corpus"]["source"]
    if run.inputs and any(entry.dataset.name == corpus["name"] for entry in run.inputs.dataset_inputs):
        return
    data = Dataset(
        name=corpus["name"],
        digest=corpus["sha256"][:36],
        source_type=source["kind"],
        source=storage.canonical_json(source),
        profile=storage.canonical_json(corpus["counts"]),
    )
    client.log_inputs(run.info.run_id, [DatasetInput(data, [InputTag("mlflow.data.context", "training")])])


def _log_files(client: MlflowClient, run_id: str, folder: Path, description: Mapping[str, Any], root: Path) -> None:
    name = description["name"]
    client.log_artifact(run_id, str(folder / "card.md"))
    for path in (root / layout.samples(name), root / layout.curve(name)):
        if path.is_file():
            client.log_artifact(run_id, str(path), "samples" if path.suffix == ".json" else "curves")
    if (pictures := root / layout.plots(name)).is_dir():
        client.log_artifacts(run_id, str(pictures), "plots")
    log_json(client, run_id, description["params"], "params.json")
    log_json(client, run_id, description["metrics"], "metrics.json")


def log_recipe(client: MlflowClient, run_id: str, folder: Path, made: Recipe, root: Path) -> None:
    """Log how to make a packaged model again: in its card and tags, as a script, with the files it needs."""
    from mlflow.entities import RunTag

    client.log_batch(run_id, tags=[RunTag(key, value) for key, value in made.tags().items()])
    card = (folder / "card.md").read_text(encoding="utf-8")
    log_text(client, run_id, f"{card}\n{made.section}", "card.md")
    log_text(client, run_id, made.script, SCRIPT)
    for name in KEPT:
        if (root / name).is_file():
            client.log_artifact(run_id, str(root / name))


def log_text(client: MlflowClient, run_id: str, text: str, name: str) -> None:
    """Log a text as a file of the run, over one that is there."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        storage.write_text(path, text)
        client.log_artifact(run_id, str(path))


def log_json(client: MlflowClient, run_id: str, value: Any, name: str) -> None:
    """Log plain data as a JSON file of the run, over one that is there."""
    log_text(client, run_id, storage.canonical_json(value), name)
