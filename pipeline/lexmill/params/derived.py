"""Derive the parts of params.yaml that follow from its models: adding a model is one entry of `models`.

    encodings              every corpus with the tokenizer that a model or a mixture reads it by
    imported_tokenizers    the tokenizers that models take from a checkpoint
    baselines              what the models of each kind must beat on their corpora
    inputs                 the paths that each model's stages read, since DVC's templates have no conditions
    translation_inputs     the same of each translation

`conf/config.yaml` has them as `${derived:...}`, which `lexmill compose` and `dvc exp run` resolve. A params.yaml edited
by hand is checked against them, and `lexmill compose --keep` rewrites them. Missing or mistyped plain data is left out
here: other checks report it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lexmill.base import layout, plugins

GROUPS = ("corpora", "tokenizers", "mixtures", "translations", "checkpoints", "models")
"""The mappings of params.yaml that people write."""
PARTS = ("encodings", "imported_tokenizers", "baselines", "inputs", "translation_inputs")
"""What follows from them."""


def entries(data: Mapping[str, Any], group: str) -> dict[str, Mapping[str, Any]]:
    """Return the entries of a group that are mappings, by name."""
    found = data.get(group)
    if not isinstance(found, Mapping):
        return {}
    return {str(name): entry for name, entry in found.items() if isinstance(entry, Mapping)}


def kind_of(entry: Mapping[str, Any]) -> Any:
    """Return the kind (`lexmill.kinds.Kind`) of an entry of `models`; None where it is unknown."""
    name = entry.get("kind")
    return plugins.load("kinds", str(name)).KIND if name in plugins.names("kinds") else None


def named(entry: Mapping[str, Any], key: str) -> str | None:
    """Return a name in the `data` of an entry of `models`; None where there is none."""
    data = entry.get("data")
    value = data.get(key) if isinstance(data, Mapping) else None
    return value if isinstance(value, str) else None


def derive(data: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return all derived parts from params.yaml as plain data."""
    return {
        "encodings": _encodings(data),
        "imported_tokenizers": _imported_tokenizers(data),
        "baselines": _baselines(data),
        "inputs": _inputs(data),
        "translation_inputs": _translation_inputs(data),
    }


def inputs_of(entry: Mapping[str, Any]) -> Any:
    """Return what a model reads; None where its entry is incomplete."""
    try:
        return kind_of(entry).inputs(entry)
    except (AttributeError, KeyError, TypeError):
        return None


def _encodings(data: Mapping[str, Any]) -> dict[str, Any]:
    pairs: dict[tuple[str, str], None] = {}
    mixtures = entries(data, "mixtures")
    for entry in entries(data, "models").values():
        if (found := inputs_of(entry)) is not None:
            pairs |= dict.fromkeys(pair for pair in found.encodings if _texts(*pair) and pair[0] not in mixtures)
    for mixture in mixtures.values():
        members = mixture.get("members")
        if isinstance(members, Mapping) and isinstance(mixture.get("tokenizer"), str):
            pairs |= dict.fromkeys((str(corpus), mixture["tokenizer"]) for corpus in members)
    return {f"{corpus}-{tokenizer}": {"corpus": corpus, "tokenizer": tokenizer} for corpus, tokenizer in pairs}


def _imported_tokenizers(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tokenizers named after a checkpoint and no trained tokenizer: they are that checkpoint's."""
    trained, checkpoints = entries(data, "tokenizers"), entries(data, "checkpoints")
    used = [named(entry, "tokenizer") for entry in entries(data, "models").values()]
    used += [mixture.get("tokenizer") for mixture in entries(data, "mixtures").values()]
    names = dict.fromkeys(name for name in used if isinstance(name, str))
    return {name: {"checkpoint": name} for name in names if name in checkpoints and name not in trained}


def _baselines(data: Mapping[str, Any]) -> dict[str, Any]:
    """Take the settings of the first model of each kind and corpus, and tokenizer where it matters."""
    found: dict[str, Any] = {}
    for entry in entries(data, "models").values():
        kind = kind_of(entry)
        if kind is None or (corpus := named(entry, "corpus")) is None:
            continue
        tokenizer = named(entry, "tokenizer") if kind.baseline_tokenizer else None
        try:
            settings = dict(kind.baseline(entry))
        except (AttributeError, KeyError, TypeError):
            continue
        name = baseline_name(kind.name, corpus, tokenizer)
        # DVC has no optional dependencies, so without a tokenizer the corpus is given twice.
        reads = layout.corpus(corpus) if tokenizer is None else layout.tokenizer(tokenizer)
        made = {"kind": kind.name, "corpus": corpus, "tokenizer": tokenizer, "reads": reads.as_posix()}
        found.setdefault(name, {**made, "settings": settings})
    return found


def _texts(*values: Any) -> bool:
    return all(isinstance(value, str) for value in values)


def baseline_name(kind: str, corpus: str, tokenizer: str | None) -> str:
    """Return the name of an entry of `baselines`."""
    return "-".join([kind, corpus, *([tokenizer] if tokenizer else [])])


def _inputs(data: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for name, entry in entries(data, "models").items():
        if (read := inputs_of(entry)) is None:
            continue
        own = {key: entry.get(key) for key in ("kind", "family", "start")}
        own["teacher"] = read.teacher or own["start"]  # DVC has no optional dependencies
        own["valid"] = read.valid or read.data
        made = {**own, "corpus": named(entry, "corpus"), "tokenizer": named(entry, "tokenizer"), "data": read.data}
        if _texts(*made.values()):
            found[name] = made
    return found


def _translation_inputs(data: Mapping[str, Any]) -> dict[str, Any]:
    models, found = entries(data, "models"), {}
    for name, entry in entries(data, "translations").items():
        model = models.get(str(entry.get("model")), {})
        made = {key: model.get(key) for key in ("kind", "family")}
        made |= {key: entry.get(key) for key in ("model", "corpus", "held_out")}
        if _texts(*made.values()):
            found[name] = made
    return found
