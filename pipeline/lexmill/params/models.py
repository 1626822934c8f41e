"""The models' sizes, and how each is trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, Literal

from lexmill.base.strict import spec
from lexmill.params.corpora import RegisteredSource, Source
from lexmill.params.length import Length
from lexmill.params.optimizers import LBFGS, Optimizer, Schedule

Precision = Literal["32-true", "bf16-mixed"]
Keep = Literal["last", "best", "average", "ema"]


@dataclass(frozen=True)
class GPTShape:
    """A decoder-only Transformer with learned positions, GELU and tied embeddings (Radford et al. 2018, 2019).

    Pre-norm is GPT-2 and GPT-3; post-norm, without a norm at the end, is the first GPT.
    """

    n_layer: int = spec("blocks", low=1)
    n_head: int = spec("attention heads", low=1)
    d_model: int = spec("width", low=8)
    context: int = spec("longest context", unit="tokens", low=2)
    dropout: float = spec("dropout on embeddings and residuals", 0.0, low=0, below=1)
    d_head: int = spec("width of a head; 0: d_model / n_head", 0, low=0)
    norm: Literal["pre", "post"] = spec("layer norm before each sub-layer or after it", "pre")
    activation: Literal["gelu_tanh", "gelu"] = spec("GELU in its tanh form (GPT-2), or exact", "gelu_tanh")

    def faults(self) -> list[str]:
        return _head_faults(self.d_model, self.n_head, self.d_head)


@dataclass(frozen=True)
class LlamaShape:
    """A decoder-only Transformer with RMSNorm, rotary positions, SwiGLU and grouped queries (Touvron et al. 2023)."""

    n_layer: int = spec("blocks", low=1)
    n_head: int = spec("query heads", low=1)
    n_kv_head: int = spec("key and value heads; each serves n_head / n_kv_head query heads", low=1)
    d_model: int = spec("width", low=8)
    d_ffn: int = spec("width of the feed-forward layers", low=8)
    context: int = spec("longest context", unit="tokens", low=2)
    dropout: float = spec("dropout on embeddings and residuals", 0.0, low=0, below=1)
    d_head: int = spec("width of a head; 0: d_model / n_head", 0, low=0)
    rope_theta: float = spec("base of the rotary wavelengths", 10000.0, above=0)
    norm_eps: float = spec("added to the mean square", 1e-5, above=0)
    tie_embeddings: bool = spec("the output matrix is the embedding", True)

    def faults(self) -> list[str]:
        found = _head_faults(self.d_model, self.n_head, self.d_head)
        if self.n_head % self.n_kv_head:
            found.append(f"n_kv_head: {self.n_kv_head} does not divide n_head ({self.n_head})")
        if not found and (self.d_head or self.d_model // self.n_head) % 2:
            found.append("d_head: rotary positions need an even head width")
        return found


@dataclass(frozen=True)
class LSTMShape:
    """A stack of long short-term memory layers (Hochreiter and Schmidhuber 1997; Zaremba et al. 2014)."""

    n_layer: int = spec("layers", low=1)
    d_model: int = spec("width of the embedding and of each layer's state", low=8)
    context: int = spec("tokens through which a training step looks back", unit="tokens", low=2)
    dropout: float = spec("dropout on embeddings and between layers", 0.0, low=0, below=1)
    tie_embeddings: bool = spec("the output matrix is the embedding (Press and Wolf 2017)", True)


def _head_faults(d_model: int, n_head: int, d_head: int) -> list[str]:
    if d_head == 0 and d_model % n_head:
        return [f"d_model: {d_model} is not a multiple of n_head ({n_head})"]
    return []


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


def unlike(
    family: str, shape: Mapping[str, Any], found_family: str, found_shape: Mapping[str, Any]
) -> dict[str, tuple[Any, Any]]:
    """Why a model cannot start from the weights of another: the fields that differ -> (the other's value, its own).

    Another dropout and a shorter context are no reason: a context gives its first positions. Another family alone is
    told, for its sizes mean other things.
    """
    if family != found_family:
        return {"family": (found_family, family)}
    here, there = _whole(family, shape), _whole(family, found_shape)
    found: dict[str, tuple[Any, Any]] = {}
    for key in sorted(here.keys() | there.keys()):
        other, own = there.get(key), here.get(key)
        shorter = key == "context" and int(own or 0) <= int(other or 0)
        if own != other and not shorter:
            found[key] = (other, own)
    return found


def _whole(family: str, shape: Mapping[str, Any]) -> dict[str, Any]:
    """A shape without dropout, with what older models do not name, and with the width of a head as it comes out."""
    of = {"gpt": GPTShape, "llama": LlamaShape, "lstm": LSTMShape}[family]
    usual = {each.name: each.default for each in fields(of) if each.default is not MISSING}
    whole = {key: value for key, value in {**usual, **shape}.items() if key != "dropout"}
    if "n_head" in whole:
        whole["d_head"] = whole.get("d_head") or whole["d_model"] // whole["n_head"]
    return whole


def start_fault(name: str, path: str, differing: Mapping[str, tuple[Any, Any]]) -> str:
    """The sentence that says it of `language_models.<name>` and what its `init_from` names."""
    there, here = (", ".join(f"{key} {values[i]}" for key, values in differing.items()) for i in (0, 1))
    rule = "the family must be the same" if "family" in differing else "only dropout may differ, and context be shorter"
    return f"language_models.{name}.init_from: {path} has {there}, this model has {here}; {rule}"


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
