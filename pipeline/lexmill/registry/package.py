"""A model's package: everything needed to use, judge and compare it, in one folder.

    artifacts/packages/<name>/
        model/          weights, config, tokenizer (the model folder)
        rows.jsonl      the test rows, for the paired test against a later model
        card.md         what it is, its data, training, metrics, limits
        package.json    kind, name, config, params, metrics, test corpus, an example, the fingerprint

A package is a function of its inputs: no time, host, path or run id, and no model is run to make it (its example is
one of the evaluation's samples), so the same inputs are the same bytes on any machine. The fingerprint is a hash over
all of it, and is the model's identity in the registry.

Cost: one copy and one hash of the model folder.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lexmill import kinds
from lexmill.base import layout, storage
from lexmill.base.errors import UserError
from lexmill.base.strict import pick
from lexmill.corpora.fetching import pins
from lexmill.corpora.identity import MEASURED_ON, split_sha256
from lexmill.params import Params
from lexmill.params.length import Length
from lexmill.params.models import Model
from lexmill.registry.card import card
from lexmill.report import measured

DESCRIPTION = "package.json"
ROWS = "rows.jsonl"
MODEL = "model"
_EXAMPLES = 2


def write(params: Params, name: str, root: str | Path = ".") -> Path:
    """Package a trained and evaluated model.

    Args:
        params: the choices; the model's entry, its corpus, tokenizer and baselines are read.
        name: which model.
        root: the workspace.

    Returns:
        The package's folder.

    Raises:
        UserError: params.yaml has no such model, or what an earlier stage makes is missing.
    """
    root = Path(root)
    model = pick(params.models, name, "models")
    description = {
        "kind": model.kind,
        "name": name,
        "config": _config(model, name, root),
        "params": _params(params, model, root),
        "metrics": _metrics(params, model, name, root),
        "test_corpus": _test_corpus(model.data.corpus, root),
        "train_corpora": _train_corpora(model, root),
        "example": _example(model.kind, name, root),
        "rows": ROWS,
    }
    target = root / layout.package(name)
    with storage.new_folder(target) as folder:
        _copy_folder(root / layout.model(name), folder / MODEL)
        _copy_file(root / layout.predictions(name) / ROWS, folder / ROWS)
        storage.write_text(folder / "card.md", card(description))
        storage.write_json(folder / DESCRIPTION, {**description, "fingerprint": _fingerprint(folder, description)})
    return target


def read(folder: str | Path) -> dict[str, Any]:
    """Return a package's description (package.json).

    Raises:
        UserError: the folder is no package.
    """
    path = Path(folder) / DESCRIPTION
    try:
        description = storage.read_json(path)
    except FileNotFoundError:
        raise UserError("there is no package here; `lexmill run` makes it", path) from None
    except ValueError as error:
        raise UserError(f"not a package's description: {error}; `lexmill run` makes it anew", path) from None
    if not isinstance(description, dict) or description.get("kind") not in kinds.names():
        raise UserError(f"not a package's description: 'kind' is none of {', '.join(kinds.names())}", path)
    if not isinstance(description.get("fingerprint"), str) or not isinstance(description.get("name"), str):
        raise UserError("not a package's description: 'name' or 'fingerprint' is missing", path)
    return description


def verify(folder: str | Path) -> dict[str, Any]:
    """Return a package's description after checking its contents against its fingerprint.

    Raises:
        UserError: the folder is no package, or was changed since.
    """
    description = read(folder)
    claimed = description["fingerprint"]
    actual = _fingerprint(Path(folder), {k: v for k, v in description.items() if k != "fingerprint"})
    if actual != claimed:
        raise UserError(
            f"the package was changed after it was made (its contents give {actual[:12]}..., it says"
            f" {claimed[:12]}...); remove it and `lexmill run` makes it anew",
            folder,
        )
    return description


def _fingerprint(folder: Path, description: dict[str, Any]) -> str:
    files = {
        path.relative_to(folder).as_posix(): storage.sha256_file(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path != folder / DESCRIPTION
    }
    return storage.fingerprint({"files": files, "description": description})


def _copy_folder(source: Path, target: Path) -> None:
    if not source.is_dir():
        raise UserError("the trained model is missing; `lexmill run` trains it", source)
    shutil.copytree(source, target, copy_function=shutil.copyfile)


def _copy_file(source: Path, target: Path) -> None:
    if not source.is_file():
        raise UserError("the evaluation's rows are missing; `lexmill run` evaluates the model", source)
    shutil.copyfile(source, target)


def _read(path: Path, what: str) -> Any:
    try:
        return storage.read_json(path)
    except FileNotFoundError:
        raise UserError(f"{what} are missing; `lexmill run` makes them", path) from None
    except ValueError as error:
        raise UserError(f"not valid JSON: {error}; `lexmill run` makes it anew", path) from None


def _plain(value: Any) -> Any:
    """Return dataclasses and tuples as plain JSON data."""
    if isinstance(value, Length):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _params(params: Params, entry: Model, root: Path) -> dict[str, Any]:
    """Return the choices that made the model: its entry and the entries it names; its corpus as pinned."""
    corpus = params.corpora[entry.data.corpus]
    source = pins.pinned(corpus.source, "corpora", entry.data.corpus, root).source
    chosen: dict[str, Any] = {
        "model": _plain(entry),
        "corpus": _plain(dataclasses.replace(corpus, source=source)),
        "data_seed": params.data_seed,
        "training_seed": params.training_seed,
    }
    known: dict[str, Any] = {**params.tokenizers, **params.imported_tokenizers}
    chosen["tokenizer"] = _plain(known[entry.data.tokenizer])
    train = entry.learns_from
    mixture = params.mixtures.get(train)
    members = mixture.members if mixture is not None else {train: 1.0} if train in params.translations else {}
    if members:
        # The card names all corpora that the model learned from, with their licences.
        whole = sum(members.values())
        chosen["mixture"] = {
            corpus: {"share": weight / whole, **_learned(params, corpus)} for corpus, weight in members.items()
        }
    checkpoint = _checkpoint(params, entry)
    if checkpoint:
        chosen["checkpoint"] = {"name": checkpoint, **_plain(params.checkpoints[checkpoint])}
    return chosen


def _learned(params: Params, corpus: str) -> dict[str, Any]:
    """Return the licence of a corpus; of a translation that of what was translated, and its choices."""
    translation = params.translations.get(corpus)
    if translation is None:
        return {"licence": params.corpora[corpus].licence}
    return {"licence": params.corpora[translation.corpus].licence, "translation": _plain(translation)}


def _checkpoint(params: Params, entry: Model) -> str:
    """Return the name of the checkpoint that a model starts from, directly or through other models, else ""."""
    start = Path(entry.start)
    if start.parent == layout.checkpoint(start.name).parent:
        return start.name
    if start.parent == layout.model(start.name).parent:
        return _checkpoint(params, params.models[start.name])
    return ""


def _metrics(params: Params, entry: Model, name: str, root: Path) -> dict[str, Any]:
    """Return the metrics of the test sets and the training, and of the baselines that are comparable with them.

    {"test": metrics, "tests": {further test set: metrics}, "train": metrics, "baselines": {...}}, with `measured_on`,
    the fingerprints of the test sets and the tokenizer, `per_class`, those of each label, and `not_compared`, baselines
    measured on another test set.
    """
    evaluated = _read(root / layout.metrics("evaluate", name), "the test metrics")
    trained = _read(root / layout.metrics("train", name), "the metrics of the training")
    files = {
        key: _read(root / layout.metrics("baseline", key), "the metrics of the baselines")
        for key in params.baselines_of(entry)
    }
    metrics = kinds.find(entry.kind).metrics
    beside = measured.beside(params, entry, evaluated, files)
    left_out = sorted(label for label, one in beside.items() if not one.same_test)
    return {
        **{key: evaluated[key] for key in ("tests", "per_class", MEASURED_ON) if evaluated.get(key)},
        **({"not_compared": left_out} if left_out else {}),
        "test": evaluated.get("test", {}),
        "train": trained,
        "baselines": {label: one.comparable(metrics) for label, one in beside.items() if one.same_test},
    }


def _config(entry: Model, name: str, root: Path) -> dict[str, Any]:
    """Return the model folder's config with the settings of the evaluation, which are no part of the training."""
    config: dict[str, Any] = _read(root / layout.model(name) / "config.json", "the trained model's files")
    return {**config, "evaluate": _plain(entry.evaluate)}


def _test_corpus(corpus: str, root: Path) -> dict[str, Any]:
    """Return the corpus of the test: its name, the counts of its splits and a hash of its test shards."""
    manifest = _read(root / layout.corpus(corpus) / "manifest.json", "the corpus's counts")
    return {
        "name": corpus,
        "counts": {split: _counts(manifest["splits"][split]) for split in sorted(manifest["splits"])},
        "sha256": split_sha256(manifest, "test"),
    }


def test_sha256(description: Mapping[str, Any]) -> str:
    """Return the hash of the test split that a package's metrics were measured on."""
    measured_on = description["metrics"].get(MEASURED_ON, {})
    return str(measured_on.get("test", description["test_corpus"]["sha256"]))


def _train_corpora(entry: Model, root: Path) -> dict[str, Any]:
    """Return the identity of a model's training data: corpus -> its amount and hash."""
    corpus, train = entry.data.corpus, entry.learns_from
    if train == corpus:
        manifest = _read(root / layout.corpus(corpus) / "manifest.json", "the corpus's counts")
        records = manifest["splits"]["train"].get("records", 0)
        return {corpus: {"records": records, "sha256": split_sha256(manifest, "train")}}
    mixture = _read(root / layout.tokens(train, entry.data.tokenizer) / "manifest.json", "the tokens learned from")
    if "members" not in mixture:
        tokens = sum(side["tokens"] for side in mixture["splits"]["train"].values())
        return {train: {"tokens": tokens, "sha256": mixture["corpus_fingerprint"]}}
    return {
        corpus: {"tokens": member["train_tokens"], "sha256": member["corpus_fingerprint"]}
        for corpus, member in mixture["members"].items()
    }


def _counts(split: dict[str, Any]) -> dict[str, int]:
    return {key: value for key, value in split.items() if isinstance(value, int)}


def _example(kind: str, name: str, root: Path) -> dict[str, Any]:
    """Return inputs with their outputs from the evaluation's samples; empty if it made none (no prompts)."""
    path = root / layout.samples(name)
    document = _read(path, "the evaluation's samples")
    samples = document.get("samples", [])[:_EXAMPLES]
    try:
        found = [kinds.find(kind).example(sample) for sample in samples]
    except KeyError as error:
        raise UserError(f"a sample has no {error}; `lexmill run` evaluates the model", path) from None
    return {"input": [one[0] for one in found], "output": [one[1] for one in found]}
