"""Predictions of a packaged answerer, from a question and its context as JSON.

    {"question": "...", "context": "..."} -> {"answer", "start", "end", "score"}

`answer` is context[start:end], "" where the context has none; `score` is the probability of that answer among all spans
and no answer.

Letters: B windows, T tokens, N tokens of a context.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from lexmill.base.errors import UserError
from lexmill.base.shown import value_text
from lexmill.data.texts import Ids, pad
from lexmill.decoding import predictor
from lexmill.kinds.answerer.windows import Sizes, Window, encode, segments, windows

if TYPE_CHECKING:
    from torch import nn

    from lexmill.tokenizers import Tokenizer

Scores = npt.NDArray[np.float64]


class Predictor(predictor.Predictor):
    """Answers questions."""

    @classmethod
    def example(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        return {"answer": "", "start": 0, "end": 0, "score": 0.5}

    def answer(self, texts: Sequence[str], chosen: Mapping[str, Any]) -> list[dict[str, Any]]:
        pairs, sizes = [_pair(text) for text in texts], Sizes.of(self.config)
        found = spans(self.module, self.tokenizer, pairs, sizes, predictor.BATCH_TOKENS)
        return [one.given(self.config["threshold"]).shown() for one in found]


@dataclass(frozen=True)
class Span:
    """The best span of a context for a question.

    Attributes:
        text, start, end: text = context[start:end]; "" and 0 where there is none.
        score: its probability among all spans and no answer.
        none: the probability of no answer.
        margin: the score of no answer less that of the span, in nats.
    """

    text: str
    start: int
    end: int
    score: float
    none: float
    margin: float

    def given(self, threshold: float | None) -> Span:
        """Return the answer to give: none where the margin is above the threshold; None: never."""
        if self.text and (threshold is None or self.margin <= threshold):
            return self
        return Span("", 0, 0, self.none, self.none, self.margin)

    def shown(self) -> dict[str, Any]:
        """Return it as the predictor gives it."""
        return {"answer": self.text, "start": self.start, "end": self.end, "score": self.score}


def spans(
    module: nn.Module,
    tokenizer: Tokenizer,
    pairs: Sequence[tuple[str, str]],
    sizes: Sizes,
    batch_tokens: int,
) -> list[Span]:
    """Return the best span for each question; none depends on the others.

    The score of a span is the sum of its start and end logits, the best over all windows; that of no answer is the sum
    at the begin token, the least over all windows (Devlin et al. 2019, section 4.3).

    Args:
        module: an answerer in eval mode.
        pairs: each question with its context.
        sizes: of windows and answers.
        batch_tokens: tokens in one forward pass, padding included.

    Raises:
        UserError: a text is not Unicode.
    """
    import torch

    from lexmill.decoding.batching import by_length

    encoded = encode(tokenizer, pairs, sizes.max_question) if pairs else []
    made = list(windows(tokenizer, encoded, sizes))
    device = next(module.parameters()).device
    logits: list[Scores] = [np.empty(0)] * len(made)
    for group in by_length([len(window.ids) for window in made], batch_tokens):
        tokens, mask = pad([made[i].ids for i in group])
        placed = segments(np.array([made[i].begin for i in group], dtype=np.int64), mask)
        with torch.inference_mode():
            found = module(*(torch.from_numpy(array).to(device) for array in (tokens, mask, placed)))
        for i, row in zip(group, found.double().cpu().numpy(), strict=True):
            logits[i] = row[: len(made[i].ids)]
    searches = [_Search() for _ in encoded]
    for window, scores in zip(made, logits, strict=True):
        usable = _usable(encoded[window.item].spans, pairs[window.item][1])
        searches[window.item].add(window, scores, usable, sizes)
    return [search.best(one.spans, context) for search, one, (_, context) in zip(searches, encoded, pairs, strict=True)]


def _usable(places: Ids, context: str) -> npt.NDArray[np.bool_]:
    """Return which tokens can begin or end an answer: those with a visible character, (N,)."""
    return np.array([not context[start:end].isspace() and end > start for start, end in places.tolist()], dtype=bool)


class _Search:
    """The best span over the windows of one question."""

    def __init__(self) -> None:
        self.score, self.none, self.tokens = -math.inf, math.inf, (0, -1)
        self._total = -math.inf  # log of the summed exp of all spans' scores

    def add(self, window: Window, logits: Scores, usable: npt.NDArray[np.bool_], sizes: Sizes) -> None:
        """Search a window: of equal scores the shortest span is taken, of these the first.

        Args:
            window, logits: and its start and end logits (T, 2).
            usable: which tokens of the context can begin or end an answer, (N,).
            sizes: no span is longer than `max_answer`.
        """
        self.none = min(self.none, float(logits[0].sum()))
        part = logits[window.begin : window.begin + window.count]
        here = usable[window.first : window.first + window.count]
        start, end = (np.where(here, part[:, side], -np.inf) for side in (0, 1))
        for more in range(min(sizes.max_answer, window.count)):
            sums = start[: window.count - more] + end[more:]
            at = int(np.argmax(sums))
            if sums[at] > self.score:
                self.score, self.tokens = float(sums[at]), (window.first + at, window.first + at + more)
            self._total = float(np.logaddexp(self._total, np.logaddexp.reduce(sums)))

    def best(self, places: Ids, context: str) -> Span:
        """Return the best span, without white space at its ends."""
        total = float(np.logaddexp(self._total, self.none))
        none = math.exp(self.none - total)
        if self.score == -math.inf:
            return Span("", 0, 0, none, none, math.inf)
        first, last = self.tokens
        start, end = int(places[first, 0]), int(places[last, 1])
        text = context[start:end]
        start += len(text) - len(text.lstrip())
        text = text.strip()
        return Span(text, start, start + len(text), math.exp(self.score - total), none, self.none - self.score)


def _pair(text: str) -> tuple[str, str]:
    """Read a question and its context; raise `UserError` for anything else."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    question, context = (found.get("question"), found.get("context")) if isinstance(found, dict) else (None, None)
    if not isinstance(question, str) or not isinstance(context, str):
        wanted = '{"question": "...", "context": "..."}'
        raise UserError(f"{value_text(text, 80)} is not a question with its context in JSON, {wanted}")
    return question, context
