"""Encoders pre-trained on running text, as BERT is: other models start from their weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from lexmill.base import layout
from lexmill.base.budgets import MAX_CONTEXT
from lexmill.base.strict import build, spec
from lexmill.kinds import Inputs, Kind, Metric
from lexmill.models.declaration import family
from lexmill.params.models import Model
from lexmill.params.optimizers import WarmupStableDecaySchedule
from lexmill.params.recipe import Recipe


@dataclass(frozen=True)
class Data:
    """Pieces of the encoded corpus."""

    corpus: str = spec("the corpus of running text")
    tokenizer: str = spec("its tokenizer, or the checkpoint whose tokenizer it takes; it must have a mask token")
    max_tokens: int = spec("longest piece of a document", 128, unit="tokens", low=8, high=MAX_CONTEXT)


@dataclass(frozen=True)
class Pretraining(Recipe):
    """A recipe with what is learned; `batch` counts pieces."""

    objective: Literal["masked", "replaced"] = spec(
        "masked tokens (Devlin et al. 2019), or which tokens a small generator replaced (Clark et al. 2020)",
        "masked",
    )
    masking: Literal["token", "word", "span"] = spec(
        "what is masked as one: tokens, words, or spans of words (Joshi et al. 2020)", "token"
    )
    share: float = spec("of a piece's tokens that is masked", 0.15, above=0, below=1)
    pairs: Literal["none", "next_sentence", "sentence_order"] = spec(
        "also predicted: whether the second half of a piece is of another document (Devlin et al. 2019), or comes first"
        " (Lan et al. 2020)",
        "none",
    )
    generator: Mapping[str, Any] = spec("of `replaced`: the generator's sizes that differ from `shape`", factory=dict)
    replaced_weight: float = spec("of `replaced`: the weight of finding replaced tokens", 50.0, above=0, high=1e6)

    def errors(self) -> list[str]:
        found = super().errors()
        if self.objective == "replaced" and self.pairs != "none":
            found.append("pairs: the objective replaced has none; set it to none")
        named = {"length": self.length, "validate_every": self.validate_every, "schedule.warmup": self.schedule.warmup}
        if isinstance(self.schedule, WarmupStableDecaySchedule):
            named["schedule.decay"] = self.schedule.decay
        found += [
            f"{name}: {one} of a batch of pieces? give steps or epochs"
            for name, one in named.items()
            if one.unit == "tokens"
        ]
        return found


@dataclass(frozen=True)
class Evaluate:
    """How the test split is scored."""

    pseudo_tokens: int = spec(
        "of the test split, masked alone for the pseudo-perplexity; 0: none",
        1000,
        unit="tokens",
        low=0,
        high=10**9,
    )


@dataclass(frozen=True)
class Encoder(Model):
    """An encoder to start from."""

    data: Data = spec("what it learns from")
    recipe: Pretraining = spec("how it is trained")
    evaluate: Evaluate = spec("how it is evaluated")

    def cross_errors(self) -> list[str]:
        errors: list[str] = []
        build(family(self.family).shape, {**asdict(self.shape), **self.recipe.generator}, errors, "recipe.generator")
        return errors


def _limits(entry: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        "It is made to start other models from; what it fills in is likely text, not true text.",
        f"It learned from pieces of at most {entry['data']['max_tokens']} tokens.",
    )


KIND = Kind(
    name="encoder",
    words="encoder",
    does="fills in masked words, made to start other models from",
    verb="fill",
    corpus="text",
    entry=Encoder,
    role="encoder",
    metrics=(
        Metric("masked_nats", "nats a masked token", higher_is_better=False, over_tokens=True),
        Metric("masked_accuracy", "accuracy at masked tokens", higher_is_better=True, over_tokens=True),
        Metric("masked_bits_per_byte", "masked bits per byte", higher_is_better=False),
        Metric("pseudo_perplexity", "pseudo-perplexity", higher_is_better=False, over_tokens=True),
    ),
    counted="tokens",
    inputs=lambda entry: Inputs(
        data=layout.tokens(entry["data"]["corpus"], entry["data"]["tokenizer"]).as_posix(),
        encodings=((entry["data"]["corpus"], entry["data"]["tokenizer"]),),
    ),
    baseline_tokenizer=True,
    facts=lambda entry: [
        ("objective", entry.recipe.objective),
        ("masking", f"{entry.recipe.share:.0%} of the tokens, by {entry.recipe.masking}"),
        ("pairs", entry.recipe.pairs.replace("_", " ")),
        ("longest piece", f"{entry.data.max_tokens:,} tokens"),
    ],
    example=lambda sample: (sample["text"], sample["filled"]),
    limits=_limits,
)
