"""How each model is trained; its sizes are a `Shape` of its family in `lexmill.models`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lexmill.base.strict import spec
from lexmill.models.declaration import mismatch
from lexmill.models.gpt.shape import Shape as GPTShape
from lexmill.models.llama.shape import Shape as LlamaShape
from lexmill.models.lstm.shape import Shape as LSTMShape
from lexmill.models.transformer.shape import Shape as TransformerShape
from lexmill.params.corpora import RegisteredSource, Source
from lexmill.params.length import Length
from lexmill.params.optimizers import LBFGS, Optimizer, Schedule

Precision = Literal["32-true", "bf16-mixed"]
Keep = Literal["last", "best", "average", "ema"]


@dataclass(frozen=True)
class LanguageModel:
    """A causal language model and its training; a family of networks is a subclass with its sizes."""

    family: str = spec("the architecture: a folder of models/")
    corpus: str = spec("the corpus it is validated and tested on")
    train: str = spec("what it learns from: a corpus, or a mixture that has `corpus` in it")
    tokenizer: str = spec("its tokenizer")
    shape: Any = spec("the architecture's sizes")
    optimizer: Optimizer = spec("the optimizer")
    schedule: Schedule = spec("the learning-rate schedule")
    length: Length = spec("how long it learns: '700 steps', '1.5e6 tokens', '3 epochs'")
    batch_tokens: int = spec("targets in one optimizer step, over all devices", unit="tokens", low=1)
    init_from: str = spec("where the weights start: a file of conf/initialization/, or a model's folder in artifacts/")
    mask_documents: bool = spec("no token looks at another document of its window", False)
    precision: Precision = spec("arithmetic of the training", "32-true")
    clip_norm: float = spec("largest norm of the gradient; 0: no clipping", 1.0, low=0)
    evaluate_every: int = spec("steps between looks at the valid split", 100, unit="steps", low=1)
    patience: int = spec("looks at valid without gain before stopping; 0: never", 0, low=0)
    keep: Keep = spec("which weights are the model", "best")
    average_last: int = spec("how many of the last looks at valid are averaged, for keep: average", 5, low=1)
    ema_decay: float = spec("decay a step of the running mean of the weights, for keep: ema", 0.999, low=0, below=1)
    prompts: tuple[str, ...] = spec("prompts of the sample generations", ("",))

    def faults(self) -> list[str]:
        found = []
        if self.batch_tokens % self.shape.context:
            found.append(f"batch_tokens: {self.batch_tokens} is not a multiple of shape.context ({self.shape.context})")
        return found + _schedule_faults(self.schedule, self.length)


@dataclass(frozen=True)
class GPTLanguageModel(LanguageModel):
    """The Transformer of GPT, GPT-2 and GPT-3."""

    family: Literal["gpt"] = spec("the architecture: a folder of models/")
    shape: GPTShape = spec("the architecture's sizes")


@dataclass(frozen=True)
class LlamaLanguageModel(LanguageModel):
    """The modern Transformer of Llama and SmolLM2."""

    family: Literal["llama"] = spec("the architecture: a folder of models/")
    shape: LlamaShape = spec("the architecture's sizes")


@dataclass(frozen=True)
class LSTMLanguageModel(LanguageModel):
    """The recurrent network."""

    family: Literal["lstm"] = spec("the architecture: a folder of models/")
    shape: LSTMShape = spec("the architecture's sizes")


AnyLanguageModel = GPTLanguageModel | LlamaLanguageModel | LSTMLanguageModel


def start_fault(name: str, path: str, differing: Mapping[str, tuple[Any, Any]]) -> str:
    """The error of `language_models.<name>` whose `init_from` names a model of another shape."""
    return f"language_models.{name}.init_from: {mismatch(path, differing)}"


def _schedule_faults(schedule: Schedule, length: Length) -> list[str]:
    found = []
    if length.amount <= 0:
        found.append("length: it must be above 0")
    warmup = schedule.warmup
    if warmup.unit == length.unit and warmup.amount >= length.amount and length != Length(1, "steps"):
        found.append(f"schedule.warmup: {warmup} must be below length ({length})")
    return found


@dataclass(frozen=True)
class Checkpoint:
    """A pretrained model in Hugging Face format, fetched as it is."""

    source: Source | RegisteredSource = spec("where it comes from")
    licence: str = spec("the weights' licence, for the model card", "")
    note: str = spec("what to know of its training data", "")


@dataclass(frozen=True)
class Classifier:
    """A text classifier on a pretrained encoder, fine-tuned whole."""

    checkpoint: str = spec("the pretrained encoder")
    corpus: str = spec("the labelled corpus")
    optimizer: Optimizer | LBFGS = spec("the optimizer; lbfgs fits the head alone, on a frozen encoder")
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
    length: Length = spec("how long it learns: '700 steps', '1.5e6 tokens', '3 epochs'")
    batch_tokens: int = spec("target tokens in one optimizer step, padding included", unit="tokens", low=16)
    label_smoothing: float = spec("probability spread over the vocabulary", 0.1, low=0, below=1)
    precision: Precision = spec("arithmetic of the training", "32-true")
    clip_norm: float = spec("largest norm of the gradient; 0: no clipping", 1.0, low=0)
    evaluate_every: int = spec("steps between looks at the valid split", 200, unit="steps", low=1)
    patience: int = spec("looks at valid without gain before stopping; 0: never", 0, low=0)
    keep: Keep = spec("which weights are the model", "best")
    average_last: int = spec("how many of the last looks at valid are averaged, for keep: average", 5, low=1)
    ema_decay: float = spec("decay a step of the running mean of the weights, for keep: ema", 0.999, low=0, below=1)
    beam: BeamSearch = spec("the search", factory=BeamSearch)

    def faults(self) -> list[str]:
        return _schedule_faults(self.schedule, self.length)
