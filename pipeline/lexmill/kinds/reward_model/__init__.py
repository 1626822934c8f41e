"""Reward models: a number for an answer, higher for the one that people would prefer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lexmill.base import layout
from lexmill.base.strict import spec
from lexmill.kinds import Inputs, Kind, Metric
from lexmill.params.models import Model, NoSettings
from lexmill.params.recipe import Recipe


@dataclass(frozen=True)
class Data:
    """Conversations with a rejected answer each."""

    corpus: str = spec("the corpus of conversations")
    tokenizer: str = spec("the tokenizer of the model it starts from")


@dataclass(frozen=True)
class RewardModel(Model):
    """A reward model on a causal network; `recipe.batch` counts pairs of answers."""

    data: Data = spec("what it learns from")
    recipe: Recipe = spec("how it is trained")
    evaluate: NoSettings = spec("how it is evaluated")


def _limits(entry: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        "Only the order of the rewards of answers to the same messages means something.",
        "It likes what its annotators liked; a model trained against it finds answers that only it likes.",
        f"Of a conversation it reads the last {entry['shape']['context']} tokens.",
    )


KIND = Kind(
    name="reward_model",
    words="reward model",
    does="rates answers, the one that people would prefer higher",
    verb="reward",
    corpus="conversation",
    entry=RewardModel,
    role="causal",
    metrics=(Metric("preference_accuracy", "preference accuracy", higher_is_better=True),),
    counted="pairs",
    inputs=lambda entry: Inputs(layout.corpus(entry["data"]["corpus"]).as_posix()),
    facts=lambda entry: [("context", f"{entry.shape.context:,} tokens")],
    example=lambda sample: (sample["input"], sample["reward"]),
    limits=_limits,
)
