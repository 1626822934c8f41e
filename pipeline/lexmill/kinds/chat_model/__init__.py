"""Chat models: language models tuned to answer, from example answers or from preferences between two."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lexmill.base import layout
from lexmill.base.strict import spec
from lexmill.kinds import Inputs, Kind, Metric
from lexmill.models.declaration import family
from lexmill.params.models import Model
from lexmill.params.recipe import Recipe


@dataclass(frozen=True)
class Data:
    """Conversations."""

    corpus: str = spec("the corpus of conversations")
    tokenizer: str = spec("the tokenizer of the model it starts from")


@dataclass(frozen=True)
class TuningRecipe(Recipe):
    """A recipe with what is learned, and low-rank adaptation; on preferences `batch` counts pairs of answers."""

    objective: Literal["answers", "preferences"] = spec(
        "the tokens of the answers, or direct preference optimization (Rafailov et al. 2023)", "answers"
    )
    beta: float = spec("what it costs, on preferences, to leave the model it starts from", 0.1, above=0, high=100)
    lora_rank: int = spec(
        "rank of what the blocks' matrices learn; 0: they are trained themselves", 0, low=0, high=4096
    )
    lora_alpha: float = spec("the products count alpha / rank times", 16.0, above=0, high=10_000)

    def errors(self) -> list[str]:
        muon = self.lora_rank and self.optimizer.name == "muon"
        return [
            *super().errors(),
            *(["optimizer: muon is for whole matrices; with lora_rank take adamw"] if muon else []),
        ]


@dataclass(frozen=True)
class Evaluate:
    """Settings of the evaluation."""

    max_tokens: int = spec("longest answer in the samples", 100, unit="tokens", low=1, high=10_000)


@dataclass(frozen=True)
class ChatModel(Model):
    """A language model that answers."""

    data: Data = spec("what it learns from")
    recipe: TuningRecipe = spec("how it is trained")
    evaluate: Evaluate = spec("how it is evaluated")

    def cross_errors(self) -> list[str]:
        batch, context = self.recipe.batch, self.shape.context
        if self.recipe.objective == "preferences":
            return []
        return [f"recipe.batch: {batch} is not a multiple of shape.context ({context})"] if batch % context else []


def _limits(entry: Mapping[str, Any]) -> tuple[str, ...]:
    context = entry["shape"]["context"]
    unlimited = family(entry["family"]).shape(**entry["shape"]).unlimited
    return (
        "It answers in the manner of its conversations; what it says is likely text, not true text.",
        "It was not trained to refuse: nothing keeps it from harmful answers but its data.",
        f"It learned from the last {context} tokens of a conversation."
        if unlimited
        else f"Of a conversation it reads the last {context} tokens.",
    )


KIND = Kind(
    name="chat_model",
    words="chat model",
    does="answers the messages of a user",
    verb="chat",
    corpus="conversation",
    entry=ChatModel,
    role="causal",
    metrics=(
        Metric("bits_per_byte", "bits per byte of the answers", higher_is_better=False),
        Metric("preference_accuracy", "preference accuracy", higher_is_better=True),
        Metric("perplexity", "perplexity a token", higher_is_better=False, over_tokens=True),
    ),
    counted="tokens",
    inputs=lambda entry: Inputs(layout.corpus(entry["data"]["corpus"]).as_posix()),
    facts=lambda entry: [("context", f"{entry.shape.context:,} tokens")],
    example=lambda sample: (sample["prompt"], sample["answer"]),
    limits=_limits,
)
