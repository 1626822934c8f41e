"""Answerers: the span of a text that answers a question about it, or none."""

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

SPECIAL = 3  # tokens of a window that are of neither text: at the start, between the two, at the end


@dataclass(frozen=True)
class Data:
    """Questions, and the windows in which a network reads them with their contexts."""

    corpus: str = spec("the corpus of questions")
    tokenizer: str = spec("its tokenizer: a checkpoint's, or one of `tokenizers`")
    max_tokens: int = spec("a window: question and part of the context", 384, unit="tokens", low=8, high=MAX_CONTEXT)
    stride: int = spec("from one window over a context to the next, at most", 128, unit="tokens", low=1)
    max_question: int = spec("longer questions are cut", 64, unit="tokens", low=1)
    max_answer: int = spec("longest answer that is given", 30, unit="tokens", low=1)

    def errors(self) -> list[str]:
        room = self.max_tokens - self.max_question - SPECIAL
        if room < 1:
            return [
                f"max_question: {self.max_question} and {SPECIAL} special tokens leave no room for the context in"
                f" max_tokens ({self.max_tokens})"
            ]
        return []


@dataclass(frozen=True)
class Answerer(Model):
    """An answerer on an encoder; `recipe.batch` counts windows."""

    data: Data = spec("what it learns from")
    recipe: Adaptation = spec("how it is trained")
    evaluate: NoSettings = spec("how it is evaluated")


def _limits(entry: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        "An answer is copied from the context; it is not checked, and a context that is wrong gives a wrong answer.",
        "Unless questions without an answer were part of its training, it always answers, whatever the context says.",
        f"Questions are cut at {entry['data']['max_question']} tokens, and no answer is longer than"
        f" {entry['data']['max_answer']}.",
    )


KIND = Kind(
    name="answerer",
    words="answerer",
    does="answers a question with a span of a text, or says that the text has no answer",
    verb="answer",
    corpus="questions",
    entry=Answerer,
    role="encoder",
    both_directions=True,
    metrics=(
        Metric("f1", "F1", higher_is_better=True),
        Metric("exact_match", "exact match", higher_is_better=True),
    ),
    counted="windows",
    inputs=lambda entry: Inputs(layout.corpus(entry["data"]["corpus"]).as_posix()),
    facts=lambda entry: [("window", f"{entry.data.max_tokens:,} tokens, every {entry.data.stride:,}")],
    example=lambda sample: (sample["input"], sample["output"]),
    limits=_limits,
)
