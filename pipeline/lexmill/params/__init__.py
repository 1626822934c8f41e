"""params.yaml as typed, strict, documented, frozen dataclasses: the choices that make a result what it is.

Everything here is identity: a change of a value re-runs the stages that read it. How and where a stage runs
(devices, threads, micro-batch, tracking server) is `lexmill.compute.execution`, never here.

`load` reads and checks a whole file and raises all its faults at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lexmill.base.errors import UserError, UserErrors
from lexmill.base.strict import build, spec
from lexmill.base.yaml_file import read_yaml
from lexmill.models.declaration import unlike
from lexmill.models.gpt.shape import Shape as GPTShape
from lexmill.models.llama.shape import Shape as LlamaShape
from lexmill.models.lstm.shape import Shape as LSTMShape
from lexmill.models.transformer.shape import Shape as TransformerShape
from lexmill.params.corpora import (
    Corpus,
    Deduplicate,
    Encoding,
    FileSource,
    Filters,
    HubSource,
    ImportedTokenizer,
    Mixture,
    PackageSource,
    ParallelTextReader,
    Reader,
    RecordsReader,
    RegisteredSource,
    Source,
    Splits,
    TextReader,
    Tokenizer,
    TranslationTreeReader,
    UrlSource,
)
from lexmill.params.length import Length
from lexmill.params.models import (
    AnyLanguageModel,
    BeamSearch,
    Checkpoint,
    Classifier,
    GPTLanguageModel,
    Keep,
    LanguageModel,
    LlamaLanguageModel,
    LSTMLanguageModel,
    Precision,
    Translator,
    start_fault,
)
from lexmill.params.optimizers import (
    LBFGS,
    SGD,
    AdaDelta,
    AdaGrad,
    Adam,
    AdamW,
    ConstantSchedule,
    CosineSchedule,
    InverseSquareRootSchedule,
    LinearSchedule,
    Muon,
    Optimizer,
    RMSprop,
    Schedule,
    WarmupStableDecaySchedule,
)
from lexmill.params.references import reference_faults

__all__ = [
    "LBFGS",
    "SGD",
    "AdaDelta",
    "AdaGrad",
    "Adam",
    "AdamW",
    "AnyLanguageModel",
    "BeamSearch",
    "Checkpoint",
    "Classifier",
    "ClassifierFloor",
    "ConstantSchedule",
    "Corpus",
    "CosineSchedule",
    "Deduplicate",
    "Encoding",
    "Evaluation",
    "FileSource",
    "Filters",
    "Floors",
    "GPTLanguageModel",
    "GPTShape",
    "HubSource",
    "ImportedTokenizer",
    "InverseSquareRootSchedule",
    "Keep",
    "LSTMLanguageModel",
    "LSTMShape",
    "LanguageModel",
    "LanguageModelFloor",
    "Length",
    "LinearSchedule",
    "LlamaLanguageModel",
    "LlamaShape",
    "Mixture",
    "Muon",
    "Optimizer",
    "PackageSource",
    "ParallelTextReader",
    "Params",
    "Precision",
    "Promotion",
    "RMSprop",
    "Reader",
    "RecordsReader",
    "RegisteredSource",
    "Schedule",
    "Source",
    "Splits",
    "TextReader",
    "Tokenizer",
    "TransformerShape",
    "TranslationTreeReader",
    "Translator",
    "TranslatorFloor",
    "UrlSource",
    "WarmupStableDecaySchedule",
    "load",
    "parse",
    "read_yaml",
]


@dataclass(frozen=True)
class LanguageModelFloor:
    """N-grams over a tokenizer's tokens (Kneser-Ney, add-k, stupid back-off) and over bytes (Kneser-Ney)."""

    corpus: str = spec("the corpus")
    tokenizer: str = spec("the tokenizer of the token n-grams")
    order: int = spec("order of the token n-grams", 3, low=1, high=6)
    byte_order: int = spec("order of the byte n-gram", 3, low=1, high=6)
    add_k: float = spec("what add-k adds to each count", 0.01, above=0)
    prompts: tuple[str, ...] = spec("prompts of the texts that the token n-gram writes", ("",))


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
    overlap: float = spec("share of a language model's window that is context alone; 0: none", 0.0, low=0, below=1)


@dataclass(frozen=True)
class Guards:
    """What must not get worse when a better version becomes champion."""

    latency: float = spec(
        "most that an answer's time may be of the champion's, median and 95th percentile; 0: not guarded", 1.5, low=0
    )
    size: float = spec("most that the model's bytes may be of the champion's; 0: not guarded", 1.5, low=0)
    slices: bool = spec("whether a part of the test split that got worse beyond chance counts", True)


@dataclass(frozen=True)
class Promotion:
    """When the champion's alias moves to a new version."""

    significance: float = spec("chance of a promotion without gain in a year", 0.05, above=0, below=1)
    tests_per_year: int = spec("comparisons over which that chance is spent; 365: every night", 365, low=1)
    fresher_margin: float = spec(
        "share of the champion's figure that an equal model of fresher data may lose and still replace it; 0: none may",
        0.0,
        low=0,
        below=1,
    )
    gain: float = spec("share of the champion's figure: the gain whose chance to be found is told", 0.02, above=0)
    guards: Guards = spec("what must not get worse", factory=Guards)

    @property
    def level(self) -> float:
        """The level of one comparison: with it, at most `significance` false promotions a year (Bonferroni)."""
        return self.significance / self.tests_per_year


@dataclass(frozen=True)
class Params:
    """All of params.yaml."""

    experiment: str = spec("the name of this set of choices, and of the MLflow experiment")
    data_seed: int = spec("seed of the data order and of resampling", low=0)
    training_seed: int = spec("seed of initialisation and dropout", low=0)
    corpora: dict[str, Corpus] = spec("corpora by name", factory=dict)
    tokenizers: dict[str, Tokenizer] = spec("tokenizers by name", factory=dict)
    encodings: dict[str, Encoding] = spec("token shards by name", factory=dict)
    imported_tokenizers: dict[str, ImportedTokenizer] = spec("tokenizers of pretrained models by name", factory=dict)
    mixtures: dict[str, Mixture] = spec("mixtures of encoded corpora by name", factory=dict)
    checkpoints: dict[str, Checkpoint] = spec("fetched pretrained models by name", factory=dict)
    language_models: dict[str, AnyLanguageModel] = spec("language models by name", factory=dict)
    classifiers: dict[str, Classifier] = spec("classifiers by name", factory=dict)
    translators: dict[str, Translator] = spec("translators by name", factory=dict)
    floors: Floors = spec("what a model must beat", factory=Floors)
    evaluation: Evaluation = spec("test-set figures", factory=Evaluation)
    promotion: Promotion = spec("when a new version becomes champion", factory=Promotion)

    @property
    def model_names(self) -> list[str]:
        """All trained models' names, language models first."""
        return [*self.language_models, *self.classifiers, *self.translators]

    def faults(self) -> list[str]:
        """What only shows in several entries at once: a model that starts from one of another shape."""
        found = []
        for name, model in self.language_models.items():
            *folder, first = model.init_from.rstrip("/").split("/")
            other = self.language_models.get(first) if folder == ["artifacts", "models"] else None
            if other is not None:
                shapes = vars(model.shape), vars(other.shape)
                differing = unlike(model.family, shapes[0], other.family, shapes[1])
                if differing:
                    found.append(start_fault(name, model.init_from, differing))
        return found


def parse(data: Any, file: str | Path = "params.yaml") -> Params:
    """Check plain data and build `Params`.

    Raises:
        UserErrors: with every fault of the file, each with its key and the nearest known name.
    """
    faults: list[str] = []
    params = build(Params, data, faults)
    faults.extend(reference_faults(data))
    if faults or params is None:
        raise UserErrors([f"{file}: {fault}" for fault in faults])
    return params


def load(path: str | Path = "params.yaml") -> Params:
    """Read and check params.yaml; raises `UserErrors` with all its faults."""
    path = Path(path)
    if not path.exists():
        here = (path.parent / "conf" / "config.yaml").is_file()
        do = "`lexmill compose` writes it from conf/" if here else "run this in the project's folder"
        raise UserError(f"the file does not exist; {do}", path)
    return parse(read_yaml(path), path)
