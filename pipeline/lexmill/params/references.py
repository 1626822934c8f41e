"""Names in params.yaml that refer to other entries: each must exist, and be of the right kind.

The check works on the plain data, so that it also speaks where another fault keeps the dataclasses from being
built: a user sees all faults at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lexmill.base.strict import nearest

_MODELS = ("language_models", "classifiers", "translators")
_FLOORS = [("floors", "language_model"), ("floors", "classifier"), ("floors", "translator")]
_TOKENIZERS = ("tokenizers", "imported_tokenizers")
_NAMED = ("corpora", *_TOKENIZERS, "mixtures", "encodings", "checkpoints", *_MODELS)


def reference_faults(data: Any) -> list[str]:
    """Every fault of a name, with its key and the nearest known name."""
    if not isinstance(data, Mapping):
        return []
    return [
        *_bad_names(data),
        *_shared_names(data),
        *_corpus_faults(data),
        *_other_faults(data),
        *_encoding_faults(data),
        *_mixture_faults(data),
        *_train_faults(data),
        *_start_faults(data),
    ]


def _entries(data: Mapping[str, Any], *path: str) -> dict[str, Mapping[str, Any]]:
    value: Any = data
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    if not isinstance(value, Mapping):
        return {}
    return {str(name): entry for name, entry in value.items() if isinstance(entry, Mapping)}


def _bad_names(data: Mapping[str, Any]) -> Iterator[str]:
    for group in [*((one,) for one in _NAMED), *_FLOORS]:
        for name in _entries(data, *group):
            if not name or not all(c.isascii() and (c.isalnum() or c in "_-") for c in name):
                yield f"{'.'.join(group)}.{name}: a name has letters, digits, '_' and '-' only"


def _shared_names(data: Mapping[str, Any]) -> Iterator[str]:
    """Models share a folder and a registry, corpora and checkpoints a folder of files; tokenizers and floors one."""
    for groups in (
        [(one,) for one in _MODELS],
        [("corpora",), ("checkpoints",)],
        [("corpora",), ("mixtures",)],
        [(one,) for one in _TOKENIZERS],
        _FLOORS,
    ):
        for i, first in enumerate(groups):
            for second in groups[i + 1 :]:
                for name in sorted(_entries(data, *first).keys() & _entries(data, *second).keys()):
                    yield f"{'.'.join(second)}.{name}: {'.'.join(first)} has an entry of that name; choose another"


def _corpus_faults(data: Mapping[str, Any]) -> Iterator[str]:
    users: list[tuple[tuple[str, ...], str | None]] = [
        (("tokenizers",), None),
        (("encodings",), None),
        (("language_models",), "text"),
        (("classifiers",), "labelled"),
        (("translators",), "parallel"),
        (("floors", "language_model"), "text"),
        (("floors", "classifier"), "labelled"),
        (("floors", "translator"), "parallel"),
    ]
    corpora = _entries(data, "corpora")
    for path, kind in users:
        for name, entry in _entries(data, *path).items():
            corpus = entry.get("corpus")
            where = ".".join((*path, name, "corpus"))
            if not isinstance(corpus, str):
                continue
            if corpus not in corpora:
                yield f"{where}: there is no corpus '{corpus}'{nearest(corpus, corpora)}"
            elif kind is not None and corpora[corpus].get("kind") not in (kind, None):
                yield f"{where}: '{corpus}' is a {corpora[corpus]['kind']} corpus, a {kind} one is needed"


def _other_faults(data: Mapping[str, Any]) -> Iterator[str]:
    users: list[tuple[tuple[str, ...], str, tuple[str, ...]]] = [
        (("encodings",), "tokenizer", _TOKENIZERS),
        (("mixtures",), "tokenizer", _TOKENIZERS),
        (("language_models",), "tokenizer", _TOKENIZERS),
        (("translators",), "tokenizer", ("tokenizers",)),
        (("floors", "language_model"), "tokenizer", _TOKENIZERS),
        (("classifiers",), "checkpoint", ("checkpoints",)),
        (("imported_tokenizers",), "checkpoint", ("checkpoints",)),
    ]
    for path, key, groups in users:
        known = {name for group in groups for name in _entries(data, group)}
        for name, entry in _entries(data, *path).items():
            value = entry.get(key)
            if not isinstance(value, str) or value in known:
                continue
            where = ".".join((*path, name, key))
            if key == "tokenizer" and value in _entries(data, "imported_tokenizers"):
                yield f"{where}: '{value}' is imported; a translator needs one of `tokenizers`, with all special tokens"
            else:
                yield f"{where}: there is no {key} '{value}'{nearest(value, known)}"


def _start_faults(data: Mapping[str, Any]) -> Iterator[str]:
    """`init_from`: a recipe, or a language model or checkpoint of this file, without going round in a circle."""
    models = _entries(data, "language_models")
    base: dict[str, str] = {}
    for name, entry in models.items():
        path = entry.get("init_from")
        if not isinstance(path, str) or path.endswith((".yaml", ".yml")):
            continue
        where = f"language_models.{name}.init_from"
        parts = path.rstrip("/").split("/")
        folders = {"models": models, "checkpoints": _entries(data, "checkpoints")}
        if len(parts) != 3 or parts[0] != "artifacts" or parts[1] not in folders:
            yield (
                f"{where}: '{path}' is neither a recipe (conf/initialization/gpt2.yaml), nor artifacts/models/<language"
                " model>, nor artifacts/checkpoints/<checkpoint>"
            )
        elif parts[2] not in folders[parts[1]]:
            what = "language model" if parts[1] == "models" else "checkpoint"
            yield f"{where}: there is no {what} '{parts[2]}'{nearest(parts[2], folders[parts[1]])}"
        elif parts[1] == "models":
            base[name] = parts[2]
    for name, first in base.items():
        seen, here = [name], first
        while here in base and here not in seen:
            seen.append(here)
            here = base[here]
        if here == name:
            yield f"language_models.{name}.init_from: it starts from itself: {' -> '.join([*seen, name])}"


def _encoding_faults(data: Mapping[str, Any]) -> Iterator[str]:
    """A model's corpus must be encoded with its tokenizer, each pair once."""
    encoded: dict[tuple[Any, Any], str] = {}
    for name, entry in _entries(data, "encodings").items():
        pair = (entry.get("corpus"), entry.get("tokenizer"))
        if pair in encoded:
            yield f"encodings.{name}: encodings.{encoded[pair]} has the same corpus and tokenizer; remove one"
        encoded.setdefault(pair, name)
    for group in ("language_models", "translators"):
        for name, entry in _entries(data, group).items():
            corpus, tokenizer = entry.get("corpus"), entry.get("tokenizer")
            tokenizers = {one for kind in _TOKENIZERS for one in _entries(data, kind)}
            known = corpus in _entries(data, "corpora") and tokenizer in tokenizers
            if known and (corpus, tokenizer) not in encoded:
                yield (
                    f"{group}.{name}: corpus '{corpus}' is not encoded with tokenizer '{tokenizer}'; add to encodings:"
                    f" {corpus}-{tokenizer}: {{corpus: {corpus}, tokenizer: {tokenizer}}}"
                )


def _mixture_faults(data: Mapping[str, Any]) -> Iterator[str]:
    """A mixture's members are corpora of running text, each encoded with its tokenizer."""
    corpora = _entries(data, "corpora")
    encoded = {(entry.get("corpus"), entry.get("tokenizer")) for entry in _entries(data, "encodings").values()}
    for name, mixture in _entries(data, "mixtures").items():
        members, tokenizer = mixture.get("members"), mixture.get("tokenizer")
        for member in members if isinstance(members, Mapping) else ():
            where = f"mixtures.{name}.members.{member}"
            if member not in corpora:
                yield f"{where}: there is no corpus '{member}'{nearest(str(member), corpora)}"
            elif corpora[member].get("kind") not in ("text", None):
                yield f"{where}: a {corpora[member]['kind']} corpus, a text one is needed"
            elif (member, tokenizer) not in encoded:
                yield (
                    f"{where}: it is not encoded with tokenizer '{tokenizer}'; add to encodings:"
                    f" {member}-{tokenizer}: {{corpus: {member}, tokenizer: {tokenizer}}}"
                )


def _train_faults(data: Mapping[str, Any]) -> Iterator[str]:
    """A language model learns from the corpus that it is tested on, or from a mixture that has it."""
    corpora, mixtures = _entries(data, "corpora"), _entries(data, "mixtures")
    for name, model in _entries(data, "language_models").items():
        train, corpus, tokenizer = model.get("train"), model.get("corpus"), model.get("tokenizer")
        where = f"language_models.{name}.train"
        if not isinstance(train, str):
            continue
        if train not in mixtures:
            if train not in corpora:
                yield f"{where}: there is no corpus or mixture '{train}'{nearest(train, [*corpora, *mixtures])}"
            elif train != corpus:
                yield f"{where}: it is '{corpus}' (its corpus) or a mixture that has '{corpus}' in it, not '{train}'"
            continue
        members = mixtures[train].get("members")
        if isinstance(members, Mapping) and corpus not in members:
            yield f"{where}: the mixture '{train}' has no member '{corpus}', the model's corpus"
        mixed_with = mixtures[train].get("tokenizer")
        if mixed_with != tokenizer:
            yield f"{where}: the mixture '{train}' is encoded with '{mixed_with}', not '{tokenizer}'"
