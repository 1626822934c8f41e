"""The models' sizes, and how each is trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lexmill.params.corpora import Source
from lexmill.strict import spec


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
    dropout: float = spec("dropout on embeddings and residuals", 0.0, low=0, below=1)

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
            found.append(f"batch_tokens: {self.batch_tokens} is not a multiple of shape.context ({self.shape.context})")
        return found + _schedule_faults(self.schedule, self.steps)


def _schedule_faults(schedule: Schedule, steps: int) -> list[str]:
    if schedule.warmup_steps >= steps > 1:
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
