"""Names in params.yaml that refer to other entries: each must exist, and be of the right kind.

The check reads plain data, so it also reports where another error keeps the dataclasses from being built.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lexmill.base.shown import key_text, value_text
from lexmill.base.strict import nearest
from lexmill.params.derived import GROUPS, entries, inputs_of, kind_of, named

MOST_NAME = 80  # a corpus's and a tokenizer's are one file name, of at most 255 bytes


def reference_errors(data: Any) -> list[str]:
    """Return every wrong name, with its key and the nearest known name."""
    if not isinstance(data, Mapping):
        return []
    return [
        *_bad_names(data),
        *_shared_names(data),
        *_tokenizer_corpora(data),
        *_model_errors(data),
        *_mixture_errors(data),
        *_translation_errors(data),
        *_start_errors(data),
        *_teacher_errors(data),
        *_cycle_errors(data),
        *_baseline_errors(data),
    ]


def _bad_names(data: Mapping[str, Any]) -> Iterator[str]:
    for group in GROUPS:
        for name in entries(data, group):
            if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
                yield f"{group}.{key_text(name)}: a name has letters, digits, '_' and '-' only"
            elif len(name) > MOST_NAME:
                yield f"{group}.{key_text(name)}: a name has at most {MOST_NAME} characters, this has {len(name):,}"


def _shared_names(data: Mapping[str, Any]) -> Iterator[str]:
    """Check names across groups: corpora share a folder with checkpoints, one with mixtures, one with translations."""
    shared = [("corpora", other) for other in ("checkpoints", "mixtures", "translations")]
    for first, second in (*shared, ("mixtures", "translations")):
        for name in sorted(entries(data, first).keys() & entries(data, second).keys()):
            yield f"{second}.{name}: {first} has an entry of that name; choose another"


def _tokenizer_corpora(data: Mapping[str, Any]) -> Iterator[str]:
    corpora = entries(data, "corpora")
    for name, entry in entries(data, "tokenizers").items():
        corpus = entry.get("corpus")
        if isinstance(corpus, str) and corpus not in corpora:
            yield f"tokenizers.{name}.corpus: there is no corpus '{corpus}'{nearest(corpus, corpora)}"


def _model_errors(data: Mapping[str, Any]) -> Iterator[str]:
    """Check a model's corpus, tokenizer and training data."""
    corpora, mixtures = entries(data, "corpora"), entries(data, "mixtures")
    tokenizers = {**entries(data, "tokenizers"), **entries(data, "checkpoints")}
    for name, entry in entries(data, "models").items():
        where, kind = f"models.{name}.data", kind_of(entry)
        corpus, tokenizer, train = (named(entry, key) for key in ("corpus", "tokenizer", "train"))
        if corpus is not None:
            yield from _corpus_errors(f"{where}.corpus", corpus, corpora, kind.corpus if kind else None)
            if kind is not None and kind.label_form is not None:
                yield from _label_errors(f"{where}.corpus", corpus, corpora, kind)
        if tokenizer is not None and tokenizer not in tokenizers:
            known = nearest(tokenizer, tokenizers)
            yield f"{where}.tokenizer: there is no tokenizer or checkpoint '{tokenizer}'{known}"
        if not train:
            continue
        translations = entries(data, "translations") if kind is not None and kind.corpus == "parallel" else {}
        if train in mixtures:
            members = mixtures[train].get("members")
            if isinstance(members, Mapping):
                if corpus not in members:
                    yield f"{where}.train: the mixture '{train}' has no member '{corpus}', the model's corpus"
                yield from _tested_on(where, corpus, translations, members)
            if (mixed_with := mixtures[train].get("tokenizer")) != tokenizer:
                other = value_text(mixed_with)
                yield f"{where}.train: the mixture '{train}' is encoded with {other}, not '{tokenizer}'"
        elif train in translations:
            yield from _tested_on(where, corpus, translations, (train,))
        elif train not in corpora:
            known = nearest(train, [*corpora, *mixtures, *translations])
            what = "corpus, mixture or translation" if translations else "corpus or mixture"
            yield f"{where}.train: there is no {what} '{train}'{known}"
        elif train != corpus:
            yield f"{where}.train: it is '{corpus}' (its corpus) or a mixture that has '{corpus}' in it, not '{train}'"


def _tested_on(
    where: str, corpus: str | None, translations: Mapping[str, Mapping[str, Any]], names: Iterable[Any]
) -> Iterator[str]:
    """Check that the translations a model learns from leave out the sentences that it is tested on."""
    for name in names:
        if name in translations and corpus is not None and (other := translations[name].get("held_out")) != corpus:
            yield (
                f"{where}.train: the translation '{name}' leaves out the test sentences of {value_text(other)}, but the"
                f" model is tested on '{corpus}'"
            )


def _corpus_errors(
    where: str, corpus: str, corpora: Mapping[str, Mapping[str, Any]], kind: str | None
) -> Iterator[str]:
    if corpus not in corpora:
        yield f"{where}: there is no corpus '{corpus}'{nearest(corpus, corpora)}"
    elif kind is not None and isinstance(found := corpora[corpus].get("kind"), str) and found != kind:
        yield f"{where}: '{corpus}' is a {found} corpus, a {kind} one is needed"


def _label_errors(where: str, corpus: str, corpora: Mapping[str, Mapping[str, Any]], kind: Any) -> Iterator[str]:
    """Check what the labels of a labelled corpus are; other errors in it are reported where it is built."""
    entry = corpora.get(corpus, {})
    reader = entry.get("reader")
    form = reader.get("label_form", {}) if isinstance(reader, Mapping) else None
    if entry.get("kind") != "labelled" or not isinstance(form, Mapping):
        return
    if (has := form.get("kind", "name")) != kind.label_form:
        yield (
            f"{where}: a label of '{corpus}' is a {has}, and {kind.one} needs a {kind.label_form}; set"
            f" corpora.{corpus}.reader.label_form.kind: {kind.label_form}"
        )


def _mixture_errors(data: Mapping[str, Any]) -> Iterator[str]:
    """Check that a mixture's members are all running text or all pairs of sentences, and its tokenizer exists."""
    translated = {name: {"kind": "parallel"} for name in entries(data, "translations")}
    corpora = {**translated, **entries(data, "corpora")}
    tokenizers = {**entries(data, "tokenizers"), **entries(data, "checkpoints")}
    for name, mixture in entries(data, "mixtures").items():
        members, tokenizer = mixture.get("members"), mixture.get("tokenizer")
        names = [str(member) for member in members] if isinstance(members, Mapping) else []
        kind = "parallel" if names and corpora.get(names[0], {}).get("kind") == "parallel" else "text"
        for member in names:
            yield from _corpus_errors(f"mixtures.{name}.members.{member}", member, corpora, kind)
        if isinstance(tokenizer, str) and tokenizer not in tokenizers:
            known = nearest(tokenizer, tokenizers)
            yield f"mixtures.{name}.tokenizer: there is no tokenizer or checkpoint '{tokenizer}'{known}"


def _translation_errors(data: Mapping[str, Any]) -> Iterator[str]:
    """Check a translation's model and corpora, and that their languages fit."""
    corpora, models = entries(data, "corpora"), entries(data, "models")
    for name, entry in entries(data, "translations").items():
        where = f"translations.{name}"
        model, corpus, held_out, side = (entry.get(key) for key in ("model", "corpus", "held_out", "side"))
        kind = kind_of(models[model]) if isinstance(model, str) and model in models else None
        if isinstance(model, str) and model not in models:
            yield f"{where}.model: there is no model '{model}'{nearest(model, models)}"
        elif kind is not None and kind.corpus != "parallel":
            yield f"{where}.model: '{model}' is {kind.one}, which translates nothing"
        if isinstance(corpus, str):
            wanted = "text" if side in (None, "text") else "parallel"
            yield from _corpus_errors(f"{where}.corpus", corpus, corpora, wanted)
        if isinstance(held_out, str):
            yield from _corpus_errors(f"{where}.held_out", held_out, corpora, "parallel")
        yield from _language_errors(where, entry, corpora, models)


def _language_errors(
    where: str,
    entry: Mapping[str, Any],
    corpora: Mapping[str, Mapping[str, Any]],
    models: Mapping[str, Mapping[str, Any]],
) -> Iterator[str]:
    """Check the languages of a translation: those it reads and writes are the model's, and those of its pairs."""

    def languages(corpus: Any) -> list[str]:
        found = corpora.get(str(corpus), {}).get("languages", ["en"])
        return [str(tag).partition("-")[0] for tag in found] if isinstance(found, list | tuple) else []

    own = languages(named(models.get(str(entry.get("model")), {}), "corpus"))
    read, pair = languages(entry.get("corpus")), languages(entry.get("held_out"))
    if len(own) != 2 or len(pair) != 2 or not read:
        return  # reported elsewhere
    text = read[-1] if entry.get("side") == "target" else read[0]
    if text != own[0]:
        yield f"{where}.corpus: its language is {text}, but the model '{entry['model']}' translates {own[0]}"
    learned = models.get(str(entry.get("model")), {}).get("data")
    more = learned.get("target_languages") if isinstance(learned, Mapping) else None
    also = [str(tag).partition("-")[0] for tag in more.values()] if isinstance(more, Mapping) else []
    back = entry.get("writes") != "target"
    written = pair[0] if back else pair[1]
    target = written if written in also else own[1]
    wanted = [target, own[0]] if back else [own[0], target]
    if wanted != pair:
        yield (
            f"{where}.held_out: its pairs are {' to '.join(pair)}, but those of this translation would be"
            f" {' to '.join(wanted)}"
        )


def _start_errors(data: Mapping[str, Any]) -> Iterator[str]:
    """Check `start`: a recipe, or a model or checkpoint of this file."""
    models = entries(data, "models")
    for name, entry in models.items():
        path = entry.get("start")
        if not isinstance(path, str) or path.endswith((".yaml", ".yml")):
            continue
        where = f"models.{name}.start"
        parts = path.rstrip("/").split("/")
        folders = {"models": models, "checkpoints": entries(data, "checkpoints")}
        if len(parts) != 3 or parts[0] != "artifacts" or parts[1] not in folders:
            yield (
                f"{where}: '{path}' is neither a recipe (conf/initialization/gpt2.yaml), nor artifacts/models/<model>,"
                " nor artifacts/checkpoints/<checkpoint>"
            )
        elif parts[2] not in folders[parts[1]]:
            what = "model" if parts[1] == "models" else "checkpoint"
            yield f"{where}: there is no {what} '{parts[2]}'{nearest(parts[2], folders[parts[1]])}"


def _teachers(data: Mapping[str, Any]) -> dict[str, str]:
    """Return the teacher of each model that has one."""
    found = {name: inputs.teacher for name, entry in entries(data, "models").items() if (inputs := inputs_of(entry))}
    return {name: folder.rpartition("/")[2] for name, folder in found.items() if folder}


def _teacher_errors(data: Mapping[str, Any]) -> Iterator[str]:
    """Check that a teacher is a model of this file, of its student's kind."""
    models = entries(data, "models")
    for name, teacher in _teachers(data).items():
        where, kind = f"models.{name}.recipe.teacher", models[name].get("kind")
        if teacher not in models:
            yield f"{where}: there is no model '{teacher}'{nearest(teacher, models)}"
        elif (other := models[teacher].get("kind")) != kind:
            yield f"{where}: '{teacher}' is of kind {value_text(other)}; a teacher is a {kind} too"


def _writers(data: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return, by model, the models that wrote the pairs it learns from."""
    translations, mixtures, found = entries(data, "translations"), entries(data, "mixtures"), {}
    for name, entry in entries(data, "models").items():
        train = named(entry, "train")
        members = mixtures[train].get("members") if train in mixtures else [train]
        names = [one for one in members if one in translations] if isinstance(members, Mapping | list) else []
        found[name] = [str(translations[one].get("model")) for one in names]
    return found


def _cycle_errors(data: Mapping[str, Any]) -> Iterator[str]:
    """Check that no model starts or learns from itself, through others and their translations too."""
    models, teachers, writers = entries(data, "models"), _teachers(data), _writers(data)
    needs: dict[str, list[str]] = {}
    for name, entry in models.items():
        start = str(entry.get("start")).rstrip("/")
        base = start.removeprefix("artifacts/models/") if start.startswith("artifacts/models/") else ""
        needs[name] = [need for need in (base, teachers.get(name, ""), *writers.get(name, ())) if need in models]

    def way_back(name: str, here: str, seen: tuple[str, ...]) -> tuple[str, ...]:
        """Return the models from `here` on that lead to `name`; nothing if none does."""
        for need in needs[here]:
            if need == name:
                return (*seen, name)
            if need not in seen and (found := way_back(name, need, (*seen, need))):
                return found
        return ()

    for name in models:
        if way := way_back(name, name, (name,)):
            key, verb = ("recipe.teacher", "learns") if name in teachers else ("start", "starts")
            if way[1] in writers.get(name, ()):
                key, verb = "data.train", "learns"
            yield f"models.{name}.{key}: it {verb} from itself: {' -> '.join(way)}"


def _baseline_errors(data: Mapping[str, Any]) -> Iterator[str]:
    """Check that models which share baselines have the same settings for them; samples may differ."""
    first: dict[tuple[Any, ...], tuple[str, Any]] = {}
    for name, entry in entries(data, "models").items():
        kind = kind_of(entry)
        if kind is None:
            continue
        try:
            settings = {key: value for key, value in kind.baseline(entry).items() if key != "samples"}
        except (AttributeError, KeyError, TypeError):
            continue
        key = (kind.name, named(entry, "corpus"), named(entry, "tokenizer") if kind.baseline_tokenizer else None)
        other, theirs = first.setdefault(key, (name, settings))
        if settings != theirs:
            keys = sorted(str(one) for one in settings.keys() | theirs.keys() if settings.get(one) != theirs.get(one))
            differing = f"{' and '.join(keys)} differ{'s' if len(keys) == 1 else ''}"
            yield f"models.{name}.evaluate: its baselines are those of '{other}', but {differing}; give both the same"
