"""params.yaml as strict, documented, frozen dataclasses; each entry is defined in the submodule of its group.

Everything here is identity: a changed value re-runs the stages that read it. How and where a stage runs (devices,
threads, micro-batch, tracking server) is in `lexmill.compute.execution`. `load` reports all errors of a file at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lexmill.base.budgets import MAX_CONTEXT
from lexmill.base.errors import UserError, UserErrors
from lexmill.base.shown import value_text
from lexmill.base.strict import build, spec
from lexmill.base.yaml_file import read_yaml
from lexmill.params.corpora import Corpus, Encoding, ImportedTokenizer, Mixture, Tokenizer, Translation
from lexmill.params.derived import PARTS, derive
from lexmill.params.models import Checkpoint, Model
from lexmill.params.references import MOST_NAME, reference_errors
from lexmill.params.size import size_errors


@dataclass(frozen=True)
class Baseline:
    """What the models of one kind must beat on a corpus; derived from the models."""

    kind: str = spec("the models' kind")
    corpus: str = spec("their corpus")
    tokenizer: str | None = spec("their tokenizer, where the baselines use it")
    reads: str = spec("the path that the baselines read besides the corpus")
    settings: Any = spec("what the kind's baselines take")


@dataclass(frozen=True)
class Inputs:
    """What the stages of a model read; derived from the model."""

    kind: str = spec("the model's kind")
    family: str = spec("the model's family")
    start: str = spec("where its weights start")
    corpus: str = spec("the corpus it is evaluated on")
    tokenizer: str = spec("its tokenizer")
    data: str = spec("the path of what it is trained on")
    teacher: str = spec("the folder of a model that it learns from; else once more `start`")
    valid: str = spec("the path of what it is validated on, where that is not in `data`; else once more `data`")


@dataclass(frozen=True)
class TranslationInputs:
    """What the stage of a translation reads; derived from it and its model."""

    kind: str = spec("the model's kind")
    family: str = spec("the model's family")
    model: str = spec("the model that translates")
    corpus: str = spec("the corpus that it translates")
    held_out: str = spec("the corpus whose valid and test are left out")


@dataclass(frozen=True)
class Evaluation:
    """Test-set metrics and their intervals."""

    bootstrap_samples: int = spec("resamples of an interval or a paired test", 1000, low=100, high=1_000_000)
    confidence: float = spec("level of the intervals", 0.95, above=0, below=1)
    batch_tokens: int = spec("tokens scored at once", 16384, unit="tokens", low=256, high=MAX_CONTEXT)
    overlap: float = spec("share of a causal model's window that is context alone; 0: none", 0.0, low=0, below=1)


@dataclass(frozen=True)
class Guards:
    """What must not get worse when a better version becomes champion."""

    latency: float = spec(
        "most that an answer's time may be of the champion's, median and 95th percentile; 0: not guarded",
        1.5,
        low=0,
        high=1000,
    )
    size: float = spec("most that the model's bytes may be of the champion's; 0: not guarded", 1.5, low=0, high=1000)
    slices: bool = spec("whether a part of the test split that got worse beyond chance counts", True)


@dataclass(frozen=True)
class Promotion:
    """When the champion's alias moves to a new version."""

    significance: float = spec("chance of a promotion without gain in a year", 0.05, above=0, below=1)
    tests_per_year: int = spec(
        "comparisons over which that chance is spent; 365: every night", 365, low=1, high=1_000_000
    )
    fresher_margin: float = spec(
        "share of the champion's metric that an equal model of fresher data may lose and still replace it; 0: none may",
        0.0,
        low=0,
        below=1,
    )
    gain: float = spec(
        "share of the champion's metric: the gain whose chance of detection is reported", 0.02, above=0, high=1000
    )
    guards: Guards = spec("what must not get worse", factory=Guards)

    @property
    def level(self) -> float:
        """Return the level of one comparison, for at most `significance` false promotions a year (Bonferroni)."""
        return self.significance / self.tests_per_year


@dataclass(frozen=True)
class Params:
    """All of params.yaml."""

    experiment: str = spec("the name of this set of choices, and of the MLflow experiment")
    data_seed: int = spec("seed of the data order and of resampling", low=0)
    training_seed: int = spec("seed of initialisation and dropout", low=0)
    corpora: dict[str, Corpus] = spec("corpora by name", factory=dict)
    tokenizers: dict[str, Tokenizer] = spec("tokenizers by name", factory=dict)
    mixtures: dict[str, Mixture] = spec("mixtures of encoded corpora by name", factory=dict)
    translations: dict[str, Translation] = spec("pairs with one side written by a model, by name", factory=dict)
    checkpoints: dict[str, Checkpoint] = spec("fetched pretrained models by name", factory=dict)
    models: dict[str, Model] = spec("models by name", factory=dict)
    evaluation: Evaluation = spec("test-set metrics", factory=Evaluation)
    promotion: Promotion = spec("when a new version becomes champion", factory=Promotion)
    encodings: dict[str, Encoding] = spec("follows from the models: token shards by name", factory=dict)
    imported_tokenizers: dict[str, ImportedTokenizer] = spec(
        "follows from the models: the tokenizers of checkpoints", factory=dict
    )
    baselines: dict[str, Baseline] = spec("follows from the models: what they must beat", factory=dict)
    inputs: dict[str, Inputs] = spec("follows from the models: what their stages read", factory=dict)
    translation_inputs: dict[str, TranslationInputs] = spec(
        "follows from the translations and their models: what their stages read", factory=dict
    )

    def errors(self) -> list[str]:
        """Return errors across entries: a model that starts from one of another shape, or is absurdly large."""
        found = self._experiment_errors()
        for name, model in self.models.items():
            *folder, first = model.start.rstrip("/").split("/")
            other = self.models.get(first) if folder == ["artifacts", "models"] else None
            if other is not None:
                found.append(model.start_error(name, other.family, vars(other.shape)))
            tokenizer = self.tokenizers.get(getattr(model.data, "tokenizer", ""))
            found += size_errors(name, model, 0 if tokenizer is None else tokenizer.vocab_size)
            kind, languages = None if tokenizer is None else tokenizer.kind, self._languages(model)
            found += [f"models.{name}.{error}" for error in model.reference_errors(kind, languages)]
        return [error for error in found if error]

    def _experiment_errors(self) -> list[str]:
        if self.experiment.strip() and len(self.experiment) <= MOST_NAME and self.experiment.isprintable():
            return []
        return [f"experiment: {value_text(self.experiment)} is no name; give 1 to {MOST_NAME} printable characters"]

    def _languages(self, model: Model) -> dict[str, tuple[str, ...]]:
        """Return the languages of each corpus that a model learns from, and of its own; without unknown names."""
        train = model.learns_from
        names = (model.data.corpus, *(self.mixtures[train].members if train in self.mixtures else (train,)))
        real = {name: self.translations[name].held_out if name in self.translations else name for name in names}
        return {name: self.corpora[corpus].languages for name, corpus in real.items() if corpus in self.corpora}

    def of_kind(self, kind: str) -> dict[str, Model]:
        """Return the models of one kind."""
        return {name: model for name, model in self.models.items() if model.kind == kind}

    def baselines_of(self, model: Model) -> dict[str, Baseline]:
        """Return the baselines of a model's kind on its corpus, the one with its own tokenizer last."""
        found = {
            name: one
            for name, one in self.baselines.items()
            if (one.kind, one.corpus) == (model.kind, model.data.corpus)
        }
        return dict(sorted(found.items(), key=lambda item: item[1].tokenizer == model.data.tokenizer))


def parse(data: Any, file: str | Path = "params.yaml") -> Params:
    """Check plain data and build `Params`; derived parts may be left out.

    Raises:
        UserErrors: all errors of the file, each with its key and the nearest known name.
    """
    errors: list[str] = []
    if isinstance(data, Mapping):
        derived = derive(data)
        errors += [
            f"{part}: it is not what the models need; `lexmill compose --keep` writes it"
            for part in PARTS
            if part in data and data[part] != derived[part]
        ]
        data = {**data, **derived}
    params = build(Params, data, errors)
    errors.extend(reference_errors(data))
    if errors or params is None:
        raise UserErrors([f"{file}: {error}" for error in errors])
    return params


def load(path: str | Path = "params.yaml") -> Params:
    """Read and check params.yaml; raise `UserErrors` with all its errors."""
    path = Path(path)
    if not path.exists():
        here = (path.parent / "conf" / "config.yaml").is_file()
        do = "`lexmill compose` writes it from conf/" if here else "run this in the project's folder"
        raise UserError(f"the file does not exist; {do}", path)
    data = read_yaml(path)
    # DVC reads the file itself, so the derived parts must be in it.
    return parse({**dict.fromkeys(PARTS), **data} if isinstance(data, Mapping) else data, path)
