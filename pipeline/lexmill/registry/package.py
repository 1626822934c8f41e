"""A model's package: everything that is needed to use it, judge it and compare it, in one folder.

    artifacts/packages/<name>/
        model/          weights, config, tokenizer (the model folder)
        rows.jsonl      the test rows, for the paired test against a later model
        card.md         what it is, its data, training, figures, limits
        package.json    kind, name, config, params, metrics, test corpus, an example, the fingerprint

A package is a function of its inputs: no time, host, path or run id, and no model is run to make it (its example is
one of the evaluation's samples), so the same inputs are the same bytes on any machine. The fingerprint is a hash over
all of it, and is the model's identity in the registry.

Cost: one copy and one hash of the model folder.
"""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

from lexmill.base import layout, storage
from lexmill.base.errors import UserError
from lexmill.base.strict import nearest
from lexmill.corpora.fetching import pins
from lexmill.params import Length, Params
from lexmill.registry.card import card
from lexmill.registry.kinds import KINDS, Kind, KindOf

DESCRIPTION = "package.json"
ROWS = "rows.jsonl"
MODEL = "model"
_EXAMPLES = 2


def write(params: Params, kind: Kind, name: str, root: str | Path = ".") -> Path:
    """Package a trained and evaluated model.

    Args:
        params: the choices; the model's entry, its corpus, tokenizer and floors are read.
        kind, name: which model.
        root: the workspace.

    Returns:
        The package's folder.

    Raises:
        UserError: params.yaml has no such model, or what an earlier stage makes is missing.
    """
    root = Path(root)
    of = KINDS[kind]
    if name not in of.models(params):
        raise UserError(f"params.yaml has no {of.words} '{name}'{nearest(name, of.models(params))}")
    description = {
        "kind": kind,
        "name": name,
        "config": _config(of.models(params)[name], name, root),
        "params": _params(params, of, name, root),
        "metrics": _metrics(params, of, name, root),
        "test_corpus": _test_corpus(of.models(params)[name].corpus, root),
        "train_corpora": _train_corpora(of.models(params)[name], root),
        "example": _example(kind, name, root),
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
    """A package's description (package.json).

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
    if not isinstance(description, dict) or description.get("kind") not in KINDS:
        raise UserError(f"not a package's description: 'kind' is none of {', '.join(KINDS)}", path)
    if not isinstance(description.get("fingerprint"), str) or not isinstance(description.get("name"), str):
        raise UserError("not a package's description: 'name' or 'fingerprint' is missing", path)
    return description


def verify(folder: str | Path) -> dict[str, Any]:
    """A package's description, after a check that its contents are those that were fingerprinted.

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
    """Dataclasses and tuples as plain JSON data."""
    if isinstance(value, Length):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _params(params: Params, of: KindOf, name: str, root: Path) -> dict[str, Any]:
    """The choices that made the model: its entry and the entries that it names; its corpus as it was pinned."""
    entry = of.models(params)[name]
    corpus = params.corpora[entry.corpus]
    source = pins.pinned(corpus.source, "corpora", entry.corpus, root).source
    chosen: dict[str, Any] = {
        "model": _plain(entry),
        "corpus": _plain(dataclasses.replace(corpus, source=source)),
        "data_seed": params.data_seed,
        "training_seed": params.training_seed,
    }
    if hasattr(entry, "tokenizer"):
        known: dict[str, Any] = {**params.tokenizers, **params.imported_tokenizers}
        chosen["tokenizer"] = _plain(known[entry.tokenizer])
    mixture = params.mixtures.get(getattr(entry, "train", ""))
    if mixture is not None:
        # A licence of each: the card names all that the model learned from.
        whole = sum(mixture.members.values())
        chosen["mixture"] = {
            corpus: {"share": weight / whole, "licence": params.corpora[corpus].licence}
            for corpus, weight in mixture.members.items()
        }
    checkpoint = _checkpoint(params, entry)
    if checkpoint:
        chosen["checkpoint"] = {"name": checkpoint, **_plain(params.checkpoints[checkpoint])}
    return chosen


def _checkpoint(params: Params, entry: Any) -> str:
    """The name of the checkpoint that a model starts from, itself or by models in between; "" where there is none."""
    if hasattr(entry, "checkpoint"):
        return str(entry.checkpoint)
    start = Path(getattr(entry, "init_from", ""))
    if start.parent == layout.checkpoint(start.name).parent:
        return start.name
    if start.parent == layout.model(start.name).parent:
        return _checkpoint(params, params.language_models[start.name])
    return ""


def _metrics(params: Params, of: KindOf, name: str, root: Path) -> dict[str, Any]:
    """{"test": figures, "train": figures, "floors": {floor: figures}}."""
    entry = of.models(params)[name]
    evaluated = _read(root / layout.metrics(of.evaluated_by, name), "the test figures")
    trained = _read(root / layout.metrics(of.trained_by, name), "the figures of the training")
    floors: dict[str, Any] = {}
    own = getattr(entry, "tokenizer", None)
    beside = [(key, floor) for key, floor in of.floors(params).items() if floor.corpus == entry.corpus]
    # The floor with the model's own tokenizer comes last, so its figures stand.
    for key, _ in sorted(beside, key=lambda item: getattr(item[1], "tokenizer", None) == own):
        figures = _read(root / layout.metrics(of.floored_by, key), "the figures of the floor")
        floors.update({label: value for label, value in figures.items() if isinstance(value, dict)})
    return {"test": evaluated.get("test", {}), "train": trained, "floors": floors}


def _config(entry: Any, name: str, root: Path) -> dict[str, Any]:
    """The model folder's config. How a translator searches is no part of its training: it comes from the params."""
    config: dict[str, Any] = _read(root / layout.model(name) / "config.json", "the trained model's files")
    return {**config, "beam": _plain(entry.beam)} if hasattr(entry, "beam") else config


def _test_corpus(corpus: str, root: Path) -> dict[str, Any]:
    """What the model was tested on: the corpus's name, the counts of its test split and a hash of its shards."""
    manifest = _read(root / layout.corpus(corpus) / "manifest.json", "the corpus's counts")
    return {
        "name": corpus,
        "counts": {split: _counts(manifest["splits"][split]) for split in sorted(manifest["splits"])},
        "sha256": test_sha256(manifest),
    }


def test_sha256(manifest: dict[str, Any]) -> str:
    """What identifies the test split of a prepared corpus: a hash over its shards, from the corpus's manifest."""
    return _split_sha256(manifest, "test")


def _split_sha256(manifest: dict[str, Any], split: str) -> str:
    return storage.fingerprint([shard["sha256"] for shard in manifest["splits"][split]["shards"]])


def _train_corpora(entry: Any, root: Path) -> dict[str, Any]:
    """What identifies the data that a model learned from: corpus -> its amount and a hash of it."""
    if getattr(entry, "train", entry.corpus) == entry.corpus:
        manifest = _read(root / layout.corpus(entry.corpus) / "manifest.json", "the corpus's counts")
        records = manifest["splits"]["train"].get("records", 0)
        return {entry.corpus: {"records": records, "sha256": _split_sha256(manifest, "train")}}
    mixture = _read(root / layout.tokens(entry.train, entry.tokenizer) / "manifest.json", "the mixture's tokens")
    return {
        corpus: {"tokens": member["train_tokens"], "sha256": member["corpus_fingerprint"]}
        for corpus, member in mixture["members"].items()
    }


def _counts(split: dict[str, Any]) -> dict[str, int]:
    return {key: value for key, value in split.items() if isinstance(value, int)}


def _example(kind: Kind, name: str, root: Path) -> dict[str, Any]:
    """An input with its output, from the evaluation's samples; empty where it made none (no prompts)."""
    path = root / layout.samples(name)
    document = _read(path, "the evaluation's samples")
    samples = document.get("samples", [])[:_EXAMPLES]
    try:
        if kind == "classifier":
            outputs: list[Any] = [{"label": s["predicted"], "score": s["score"]} for s in samples]
            inputs = [s["text"] for s in samples]
        elif kind == "translator":
            outputs = [s["hypothesis"] for s in samples]
            inputs = [s["source"] for s in samples]
        else:
            outputs = [s["text"] for s in samples]
            inputs = [s["prompt"] for s in samples]
    except KeyError as error:
        raise UserError(f"a sample has no {error}; `lexmill run` evaluates the model", path) from None
    return {"input": inputs, "output": outputs}
