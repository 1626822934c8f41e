"""Exact match and F1 as the official script of SQuAD 2.0 counts them, from rows; shares, not per cent.

A row is a question: {"id", "group", "question", "answers", "predicted", "exact_match", "f1", "context_words"}. Its
`answers` are the texts of the right ones; none: there is no answer. Both scores are the best over the right answers.
Texts are compared in lower case without the punctuation of ASCII, without the words a, an and the, with single spaces.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from lexmill.base.errors import UserError
from lexmill.evaluation.bootstrap import Resampling, Weights, resampling_units, with_intervals
from lexmill.evaluation.rows import Row
from lexmill.evaluation.significance import PairedTest, by_key, by_thirds, ratio

METRICS = ("f1", "exact_match")
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normal(text: str) -> str:
    """Return a text as it is compared."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def f1(predicted: str, answer: str) -> float:
    """Return the F1 of the words of two texts, each counted as often as it occurs; of no words 1 if both have none."""
    ours, theirs = normal(predicted).split(), normal(answer).split()
    if not ours or not theirs:
        return float(ours == theirs)
    same = sum((Counter(ours) & Counter(theirs)).values())
    return 2 * same / (len(ours) + len(theirs))


def scores(predicted: str, answers: Sequence[str]) -> tuple[float, float]:
    """Return exact match and F1.

    Args:
        predicted: a text; "": no answer.
        answers: the right ones; those without words do not count, and if none is left the right answer is none.
    """
    right = [answer for answer in answers if normal(answer)] or [""]
    return max(float(normal(predicted) == normal(one)) for one in right), max(f1(predicted, one) for one in right)


def row(record: Mapping[str, Any], predicted: str) -> Row:
    """Return the row of a question.

    Args:
        record: {"id", "group", "question", "context", "answers"}.
        predicted: the answer given; "": none.
    """
    answers = [answer["text"] for answer in record["answers"]]
    exact_match, f1_score = scores(predicted, answers)
    return {
        "id": record["id"],
        "group": record["group"],
        "question": record["question"],
        "answers": answers,
        "predicted": predicted,
        "exact_match": exact_match,
        "f1": f1_score,
        "context_words": len(record["context"].split()),
    }


def has_answer(one: Row) -> bool:
    """Return whether the question of a row has an answer, as it is scored."""
    return any(normal(answer) for answer in one["answers"])


def summarise(rows: Sequence[Row], unit: str, how: Resampling) -> dict[str, Any]:
    """Return exact match and F1 with intervals, and the number of questions.

    Where some questions have no answer, also both of the others (`has_answer_f1`, `has_answer_exact_match`), the share
    of them to which none was given (`no_answer_exact_match`), and their number (`without_answer`).

    Raises:
        UserError: there are no rows.
    """
    if not rows:
        raise UserError("the test split is empty; give `splits.test` of the corpus a larger share")
    values = {name: np.array([one[name] for one in rows]) for name in METRICS}
    having = np.array([has_answer(one) for one in rows])

    def score(weights: Weights) -> dict[str, float]:
        found = {name: float(weights @ value / weights.sum()) for name, value in values.items()}
        if not having.all():
            answered, silent = weights * having, weights * ~having
            for name, value in values.items():
                found[f"has_answer_{name}"] = ratio(answered @ value, answered.sum())
            found["no_answer_exact_match"] = ratio(silent @ values["exact_match"], silent.sum())
        return {name: value for name, value in found.items() if np.isfinite(value)}

    units = resampling_units(rows, unit, "question")
    found = with_intervals(score(np.ones(len(rows), dtype=np.int64)), score, units, how)
    without = {} if having.all() else {"without_answer": int((~having).sum())}
    return found | {"questions": len(rows)} | without


def slices(rows: Sequence[Row]) -> dict[str, list[int]]:
    """Return the rows by the length of their contexts, and with and without an answer where there are both."""
    found = by_thirds(rows, lambda one: one["context_words"])
    having = by_key(rows, lambda one: "with an answer" if has_answer(one) else "without an answer")
    return found | (having if len(having) > 1 else {})


def _columns(metric: str) -> Callable[[Row], list[float]]:
    return lambda one: [one[metric], 1]


TEST = PairedTest(
    same=("group", "question", "answers"),
    metrics=dict.fromkeys(METRICS, True),
    score=lambda metric: (lambda sums: ratio(sums[0], sums[1]), _columns(metric)),
    default=lambda *_: METRICS[0],
    slices=slices,
)
