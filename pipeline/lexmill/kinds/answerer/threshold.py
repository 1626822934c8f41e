"""The threshold above which no answer is given, chosen on the valid split (Rajpurkar et al. 2018, section 5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lexmill.decoding.predictor import BATCH_TOKENS
from lexmill.kinds.answerer.metrics import scores
from lexmill.kinds.answerer.predict import spans
from lexmill.kinds.answerer.windows import Sizes

if TYPE_CHECKING:
    from torch import nn

    from lexmill.tokenizers import Tokenizer


def tune(
    module: nn.Module, tokenizer: Tokenizer, records: Iterable[Mapping[str, Any]], sizes: Sizes
) -> tuple[float | None, float]:
    """Return the threshold with the highest F1 on these questions, None if always answering has; and that F1."""
    records, training = list(records), module.training
    module.eval()
    pairs = [(record["question"], record["context"]) for record in records]
    found = spans(module, tokenizer, pairs, sizes, BATCH_TOKENS)
    module.train(training)
    gold = [[answer["text"] for answer in record["answers"]] for record in records]
    answering = [scores(one.text, answers)[1] for one, answers in zip(found, gold, strict=True)]
    silent = [scores("", answers)[1] for answers in gold]
    return best([one.margin for one in found], answering, silent)


def best(margins: Sequence[float], answering: Sequence[float], silent: Sequence[float]) -> tuple[float | None, float]:
    """Return the threshold with the highest mean score, and that score; of equal ones the one with most answers.

    Args:
        margins: of each question, the score of no answer less that of its span; above the threshold: no answer.
        answering, silent: what it scores with its span, and without an answer.
    """
    order = sorted(range(len(margins)), key=lambda i: -margins[i])
    total = sum(answering)
    threshold, highest = None, total
    for place, i in enumerate(order):
        total += silent[i] - answering[i]
        following = margins[order[place + 1]] if place + 1 < len(order) else margins[i] - 2.0
        # The order of summation leaves its trace in the last bits.
        if following < margins[i] and total > highest + 1e-9:
            above = margins[i] if margins[i] < float("inf") else following + 2.0
            threshold, highest = (above + following) / 2, total
    return threshold, highest / max(1, len(margins))
