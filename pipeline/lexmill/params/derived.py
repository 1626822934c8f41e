"""What follows from the models of params.yaml, so that nobody writes it: adding a model is one entry of `models`.

    encodings              every corpus with the tokenizer that a model or a mixture reads it by
    imported_tokenizers    the tokenizers that models take from a checkpoint
    baselines              what the models of each kind must beat on their corpora
    inputs                 the paths that each model's stages read; DVC's templates know no choice, only values

`conf/config.yaml` has them as `${derived:...}`, which `lexmill compose` and `dvc exp run` resolve; a params.yaml
edited by hand is held to them, and `lexmill compose --keep` writes them anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lexmill.base import layout
from lexmill.params.plain import entries, kind_of, named

PARTS = ("encodings", "imported_tokenizers", "baselines", "inputs")


def derive(data: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """All parts, from params.yaml as plain data. What an entry leaves out or mistypes is left out here too."""
    return {
        "encodings": _encodings(data),
        "imported_tokenizers": _imported_tokenizers(data),
        "baselines": _baselines(data),
        "inputs": _inputs(data),
    }


def _read(entry: Mapping[str, Any]) -> Any:
    """What a model reads; None where its entry does not say yet."""
    try:
        return kind_of(entry).inputs(entry)
    except (AttributeError, KeyError, TypeError):
        return None


def _encodings(data: Mapping[str, Any]) -> dict[str, Any]:
    pairs: dict[tuple[str, str], None] = {}
    for entry in entries(data, "models").values():
        if (found := _read(entry)) is not None:
            pairs |= dict.fromkeys(pair for pair in found.encodings if _texts(*pair))
    for mixture in entries(data, "mixtures").values():
        members = mixture.get("members")
        if isinstance(members, Mapping) and isinstance(mixture.get("tokenizer"), str):
            pairs |= dict.fromkeys((str(corpus), mixture["tokenizer"]) for corpus in members)
    return {f"{corpus}-{tokenizer}": {"corpus": corpus, "tokenizer": tokenizer} for corpus, tokenizer in pairs}


def _imported_tokenizers(data: Mapping[str, Any]) -> dict[str, Any]:
    """A tokenizer that has the name of a checkpoint, and of no trained tokenizer, is that checkpoint's."""
    trained, checkpoints = entries(data, "tokenizers"), entries(data, "checkpoints")
    used = [named(entry, "tokenizer") for entry in entries(data, "models").values()]
    used += [mixture.get("tokenizer") for mixture in entries(data, "mixtures").values()]
    names = dict.fromkeys(name for name in used if isinstance(name, str))
    return {name: {"checkpoint": name} for name in names if name in checkpoints and name not in trained}


def _baselines(data: Mapping[str, Any]) -> dict[str, Any]:
    """Of the models of one kind on one corpus, and one tokenizer where it matters, the first gives the settings."""
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
        # A path that a baseline does not read is given again: DVC knows no optional dependency.
        reads = layout.corpus(corpus) if tokenizer is None else layout.tokenizer(tokenizer)
        made = {"kind": kind.name, "corpus": corpus, "tokenizer": tokenizer, "reads": reads.as_posix()}
        found.setdefault(name, {**made, "settings": settings})
    return found


def _texts(*values: Any) -> bool:
    return all(isinstance(value, str) for value in values)


def baseline_name(kind: str, corpus: str, tokenizer: str | None) -> str:
    """The name of an entry of `baselines`."""
    return "-".join([kind, corpus, *([tokenizer] if tokenizer else [])])


def _inputs(data: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for name, entry in entries(data, "models").items():
        if (read := _read(entry)) is None:
            continue
        own = {key: entry.get(key) for key in ("kind", "family", "start")}
        made = {**own, "corpus": named(entry, "corpus"), "tokenizer": named(entry, "tokenizer"), "data": read.data}
        if _texts(*made.values()):
            found[name] = made
    return found
