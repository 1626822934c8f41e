"""Names in params.yaml that refer to other entries: each must exist, and be of the right kind.

The check works on the plain data, so that it also speaks where another fault keeps the dataclasses from being
built: a user sees all faults at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lexmill.strict import nearest

_MODELS = ("language_models", "classifiers", "translators")
_FLOORS = [("floors", "language_model"), ("floors", "classifier"), ("floors", "translator")]
_NAMED = ("corpora", "tokenizers", "encodings", "checkpoints", *_MODELS)


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
    """Models share one folder and one registry, corpora and checkpoints a folder of files, floors one of rows."""
    for groups in ([(one,) for one in _MODELS], [("corpora",), ("checkpoints",)], _FLOORS):
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
    users: list[tuple[tuple[str, ...], str, str]] = [
        (("encodings",), "tokenizer", "tokenizers"),
        (("language_models",), "tokenizer", "tokenizers"),
        (("translators",), "tokenizer", "tokenizers"),
        (("floors", "language_model"), "tokenizer", "tokenizers"),
        (("classifiers",), "checkpoint", "checkpoints"),
    ]
    for path, key, group in users:
        known = _entries(data, group)
        for name, entry in _entries(data, *path).items():
            value = entry.get(key)
            if isinstance(value, str) and value not in known:
                yield f"{'.'.join((*path, name, key))}: there is no {key} '{value}'{nearest(value, known)}"


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
            known = corpus in _entries(data, "corpora") and tokenizer in _entries(data, "tokenizers")
            if known and (corpus, tokenizer) not in encoded:
                yield (
                    f"{group}.{name}: corpus '{corpus}' is not encoded with tokenizer '{tokenizer}'; add to encodings:"
                    f" {corpus}-{tokenizer}: {{corpus: {corpus}, tokenizer: {tokenizer}}}"
                )
