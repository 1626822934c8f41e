"""Sentence encoders: one vector for a text, such that texts which belong together have a large cosine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lexmill.base import layout
from lexmill.base.budgets import MAX_CONTEXT
from lexmill.base.strict import spec
from lexmill.kinds import Inputs, Kind, Metric
from lexmill.params.adaptation import Adaptation
from lexmill.params.models import Model, NoSettings


@dataclass(frozen=True)
class Data:
    """Labelled pairs of texts."""

    corpus: str = spec("the labelled corpus; its reader has a second text")
    tokenizer: str = spec("its tokenizer: a checkpoint's")
    max_tokens: int = spec("longer texts are cut", 128, unit="tokens", low=4, high=MAX_CONTEXT)
    positive: str = spec("the label of pairs that belong together; a number: from it on; '': every pair", "")


@dataclass(frozen=True)
class Contrastive(Adaptation):
    """A recipe with the temperature of the contrastive loss."""

    temperature: float = spec("cosines are divided by it before the softmax", 0.05, above=0, high=10)


@dataclass(frozen=True)
class SentenceEncoder(Model):
    """A sentence encoder on an encoder."""

    data: Data = spec("what it learns from")
    recipe: Contrastive = spec("how it is trained")
    evaluate: NoSettings = spec("how it is evaluated")


def _limits(entry: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        "What counts as alike is what its corpus pairs; a cosine is no probability.",
        f"Texts longer than {entry['data']['max_tokens']} tokens are cut.",
    )


KIND = Kind(
    name="sentence_encoder",
    words="sentence encoder",
    does="gives a text a vector, and two texts the cosine of theirs",
    verb="similar",
    corpus="labelled",
    entry=SentenceEncoder,
    role="encoder",
    both_directions=True,
    metrics=(
        Metric("accuracy_at_1", "accuracy@1", higher_is_better=True),
        Metric("mean_reciprocal_rank", "mean reciprocal rank", higher_is_better=True),
        Metric("spearman", "Spearman's rho", higher_is_better=True),
    ),
    counted="pairs",
    inputs=lambda entry: Inputs(layout.corpus(entry["data"]["corpus"]).as_posix()),
    facts=lambda entry: [("longest text", f"{entry.data.max_tokens:,} tokens")],
    example=lambda sample: ("\t".join((sample["text"], sample["second"])), {"cosine": sample["cosine"]}),
    limits=_limits,
    baseline=lambda entry: {"positive": entry["data"].get("positive", "")},
)
