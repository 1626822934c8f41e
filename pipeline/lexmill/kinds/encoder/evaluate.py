"""Evaluates an encoder on a test split: masked tokens, the pseudo-perplexity of a part of it, fillings to read.

Cost: about eight passes over the test split, and one pass over a piece for each token of the pseudo-perplexity.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lexmill.decoding.fill import MASK, fill
from lexmill.evaluation import masked_tokens
from lexmill.evaluation.rows import Row, spread
from lexmill.evaluation.subject import Evaluated, Subject
from lexmill.kinds.encoder import masked

SAMPLES = 12
_WORDS = 24  # of a sample


def evaluate(subject: Subject) -> Evaluated:
    """Score the test split, and fill in a word of some of its blocks."""
    found = rows(subject)
    samples = _samples(subject)
    wanted = subject.settings.pseudo_tokens
    measured = metrics(subject, found) | masked_tokens.pseudo_perplexity(subject, masked.reader(subject), wanted)
    return Evaluated(rows=found, metrics=measured, samples={"samples": samples})


def rows(subject: Subject) -> list[Row]:
    """Return the rows, a block of a document each."""
    return masked_tokens.rows(subject, masked.reader(subject))


def metrics(subject: Subject, rows: Sequence[Row]) -> dict[str, Any]:
    """Return the metrics of the test set from its rows."""
    return masked_tokens.summarise(rows, subject.corpus.unit, subject.resampling)


def _samples(subject: Subject) -> list[dict[str, Any]]:
    """Return texts with one word masked, the word, and what the encoder fills in."""
    every, texts, words = masked_tokens.blocks(subject.records()), [], []
    for i in spread(len(every), SAMPLES):
        parts = every[i][2].split()[:_WORDS]
        if len(parts) < 2:
            continue
        at = len(parts) // 2
        texts.append(" ".join([*parts[:at], MASK, *parts[at + 1 :]]))
        words.append(parts[at])
    answers = fill(masked.reader(subject), texts, top=5)
    return [
        {
            "text": text,
            "word": word,
            "filled": [{"token": one["token"], "probability": one["probability"]} for one in answer],
        }
        for text, word, answer in zip(texts, words, answers, strict=True)
    ]
