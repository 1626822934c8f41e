"""The page's sections on corpora and tokenizers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lexmill.base import layout
from lexmill.corpora.fetching import pins
from lexmill.corpora.prepared import in_order
from lexmill.params import Params
from lexmill.params.corpora import Corpus, FileSource, HubSource, PackageSource, Source, Translation
from lexmill.report import read
from lexmill.report.verdicts import plain

_COLUMNS = ("records", "groups", "words", "bytes")
_KINDS = {
    "text": "running text",
    "labelled": "labelled texts",
    "tagged": "tagged sentences",
    "parallel": "sentence pairs",
    "conversation": "conversations",
    "questions": "questions",
}
_PAIR = " ||| "  # between the sides of an example pair


@dataclass(frozen=True)
class Removal:
    """The records removed by one filter: `share` of the raw ones; `examples` are (source, target) for pairs, else
    (text,)."""

    name: str
    bound: str
    removed: int
    share: float
    examples: list[tuple[str, ...]]


@dataclass(frozen=True)
class CorpusPart:
    """One corpus's section; counts are None before it is prepared.

    `gave_way`: for each given set, the records outside it with a text in it; `shared`: the texts in two given sets.
    """

    name: str
    kind: str
    languages: tuple[str, ...]
    licence: str
    source: str
    unit: str
    raw: int | None
    used: int | None
    removals: list[Removal]
    adds_up: bool
    splits: list[tuple[str, list[int | None]]]
    overlap: int | None
    gave_way: list[tuple[str, int]]
    shared: list[tuple[str, int]]

    @property
    def kept_share(self) -> float:
        return self.used / self.raw if self.raw and self.used is not None else 0.0


def corpora(choices: Params, root: Path) -> list[CorpusPart]:
    """Return the corpora, in the order of params.yaml."""
    entries = pins.read(root)["corpora"]
    return [_corpus(name, corpus, entries.get(name), root) for name, corpus in choices.corpora.items()]


def _corpus(name: str, corpus: Corpus, entry: pins.Entry | None, root: Path) -> CorpusPart:
    metrics = read.json_object(root / layout.metrics("prepare", name)) or {}
    samples = read.json_object(root / layout.samples(f"prepare-{name}")) or {}
    raw, used = _count(metrics.get("raw")), _count(metrics.get("used"))
    removals = _removals(read.mapping(metrics.get("removed")), samples.get("filters"), corpus, raw or 0)
    overlaps = {name: _count(value) or 0 for name, value in read.mapping(metrics.get("overlap")).items()}
    gave_way = {name: _count(value) or 0 for name, value in read.mapping(metrics.get("gave_way")).items()}
    return CorpusPart(
        name=name,
        kind=_KINDS[corpus.kind],
        languages=corpus.languages,
        licence=corpus.licence,
        source=source_text(corpus.source, pins.pin_of(corpus.source, entry)),
        unit=corpus.unit,
        raw=raw,
        used=used,
        removals=removals,
        adds_up=raw is None or used is None or raw == used + sum(removal.removed for removal in removals),
        splits=[
            (split, [_count(read.mapping(metrics.get(column)).get(split)) for column in _COLUMNS])
            for split in in_order(read.mapping(metrics.get("records")))
        ],
        overlap=sum(overlaps.values()) if overlaps else None,
        gave_way=list(gave_way.items()),
        shared=[(plain(name), count) for name, count in overlaps.items() if count and gave_way],
    )


@dataclass(frozen=True)
class TranslationPart:
    """Pairs with one side written by a model; the counts are None until its stage has run."""

    name: str
    chosen: Translation
    raw: int | None
    used: int | None
    removed: list[tuple[str, int]]
    pairs: list[tuple[str, ...]]


def translations(choices: Params, root: Path) -> list[TranslationPart]:
    """Return the translations, in the order of params.yaml."""
    found = []
    for name, chosen in choices.translations.items():
        metrics = read.json_object(root / layout.metrics("translate", name)) or {}
        pairs = (read.json_object(root / layout.samples(f"translate-{name}")) or {}).get("pairs")
        removed = {plain(why): _count(count) or 0 for why, count in read.mapping(metrics.get("removed")).items()}
        found.append(
            TranslationPart(
                name=name,
                chosen=chosen,
                raw=_count(metrics.get("raw")),
                used=_count(metrics.get("used")),
                removed=[(why, count) for why, count in removed.items() if count],
                pairs=[_sides(str(text), "parallel") for text in (pairs if isinstance(pairs, list) else [])],
            )
        )
    return found


def _removals(removed: Mapping[str, Any], filters: Any, corpus: Corpus, raw: int) -> list[Removal]:
    """Return the filters in the order in which prepare applies them (that of the samples), else by name."""
    examples = {
        str(entry.get("name")): entry.get("examples")
        for entry in (filters if isinstance(filters, list) else [])
        if isinstance(entry, dict)
    }
    order = {name: i for i, name in enumerate(examples)}
    found = []
    for name in sorted(removed, key=lambda name: (order.get(name, len(order)), name)):
        bound = getattr(corpus.filters, name, None)
        shown = "" if bound is None or isinstance(bound, bool) else f"{bound:g}"
        count = _count(removed[name]) or 0
        texts = examples.get(name)
        found.append(
            Removal(
                name=plain(name),
                bound=shown,
                removed=count,
                share=count / raw if raw else 0.0,
                examples=[_sides(str(text), corpus.kind) for text in (texts if isinstance(texts, list) else [])],
            )
        )
    return found


def _sides(example: str, kind: str) -> tuple[str, ...]:
    return tuple(example.split(_PAIR, 1)) if kind in ("parallel", "conversation", "questions") else (example,)


def source_text(source: Source, pin: Mapping[str, Any] | None = None) -> str:
    """Return a corpus's source in words; a moving source as pinned in sources.lock.yaml.

    Args:
        source: of params.yaml.
        pin: of that source; None: it is fixed in params.yaml, or was never pinned.
    """
    found, asked = pin or {}, ""
    if isinstance(source, PackageSource):
        version = found.get("version", source.version)
        asked = f" ({source.version})" if version != source.version else ""
        text = f"{source.registry} package {source.name} {version}{asked}"
    elif isinstance(source, HubSource):
        revision = found.get("revision", source.revision)
        asked = f" ({source.revision or 'main branch'})" if revision != source.revision else ""
        at = f"at {revision}{asked}" if revision else ""
        text = " ".join(part for part in (f"data set {source.dataset}", source.subset, at) if part)
    elif isinstance(source, FileSource):
        text = ", ".join(source.paths) + (f" ({pins.files_text(found)})" if found else "")
    else:
        hashes = ", ".join(str(one)[:12] for one in found.get("sha256", ()))
        text = ", ".join(source.urls) + (f" (sha256 {hashes})" if hashes else "")
    return text if pin is not None or not pins.needs_pin(source) else f"{text}, not pinned"


@dataclass(frozen=True)
class TokenizerPart:
    """One line of the table of tokenizers; metrics on the validation split, None if they were not measured."""

    name: str
    kind: str
    corpus: str
    lowercase: bool
    vocab_size: int | None
    encoded: list[tuple[str, int]]  # corpus, its tokens
    tokens_per_word: float | None = None
    bytes_per_token: float | None = None
    unknown: int | None = None
    round_trip_failures: int | None = None


def tokenizers(choices: Params, root: Path) -> list[TokenizerPart]:
    """Return the tokenizers, in the order of params.yaml; those of pretrained models last."""
    encoded: dict[str, list[tuple[str, int]]] = {}
    for name, encoding in choices.encodings.items():
        metrics = read.json_object(root / layout.metrics("encode", name)) or {}
        tokens = [_count(part.get("tokens")) or 0 for part in metrics.values() if isinstance(part, dict)]
        if tokens:
            encoded.setdefault(encoding.tokenizer, []).append((encoding.corpus, sum(tokens)))
    found = []
    for name, tokenizer in choices.tokenizers.items():
        metrics = read.json_object(root / layout.metrics("tokenizer", name)) or {}
        valid = read.mapping(metrics.get("valid")) or read.mapping(metrics.get("train"))
        found.append(
            TokenizerPart(
                name=name,
                kind=tokenizer.kind,
                corpus=tokenizer.corpus,
                lowercase=tokenizer.lowercase,
                vocab_size=_count(metrics.get("vocab_size")),
                tokens_per_word=read.number(valid.get("tokens_per_word")),
                bytes_per_token=read.number(valid.get("bytes_per_token")),
                unknown=_count(metrics.get("unknown")),
                round_trip_failures=_count(metrics.get("round_trip_failures")),
                encoded=encoded.get(name, []),
            )
        )
    for name, imported in choices.imported_tokenizers.items():
        metrics = read.json_object(root / layout.metrics("import_tokenizer", name)) or {}
        found.append(
            TokenizerPart(
                name=name,
                kind="imported",
                corpus=imported.checkpoint,
                lowercase=False,
                vocab_size=_count(metrics.get("vocab_size")),
                encoded=encoded.get(name, []),
            )
        )
    return found


def _count(value: Any) -> int | None:
    found = read.number(value)
    return None if found is None else int(found)
