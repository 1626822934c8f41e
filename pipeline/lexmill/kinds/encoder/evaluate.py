"""Evaluates an encoder on a test split: masked tokens, the pseudo-perplexity of a part of it, fillings to read.

Cost: about eight passes over the test split, and one pass over a piece for each token of the pseudo-perplexity.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lexmill.base import progress
from lexmill.data.masking import vocabulary
from lexmill.decoding.fill import MASK, fill
from lexmill.decoding.masked_tokens import scores
from lexmill.evaluation.rows import Row, spread
from lexmill.evaluation.subject import Evaluated, Subject
from lexmill.kinds.encoder import masked
from lexmill.kinds.encoder.blocks import block_row, blocks
from lexmill.kinds.encoder.metrics import summarise

SAMPLES = 12
_WORDS = 24  # of a sample
_TOGETHER = 64  # blocks between progress updates


def evaluate(subject: Subject) -> Evaluated:
    """Score the test split, and fill in a word of some of its blocks."""
    found = rows(subject)
    samples = _samples(subject)
    measured = metrics(subject, found) | pseudo_perplexity(subject)
    return Evaluated(rows=found, metrics=measured, samples={"samples": samples})


def rows(subject: Subject) -> list[Row]:
    """Return the rows, a block of a document each."""
    words = vocabulary(subject.tokenizer)
    found: list[Row] = []
    pending, reader = list(blocks(subject.records())), masked.reader(subject)
    with progress.bar(f"evaluate {subject.words}", len(pending)) as bar:
        for start in range(0, len(pending), _TOGETHER):
            some = pending[start : start + _TOGETHER]
            ids = subject.tokenizer.encode_batch([text for _, _, text in some])
            scored = scores(reader, ids, batch_tokens=subject.evaluation.batch_tokens)
            for block, tokens, values in zip(some, ids, scored, strict=True):
                found.append(block_row(block, tokens, values, words, subject.tokenizer))
            bar.update(len(some))
    return found


def metrics(subject: Subject, rows: Sequence[Row]) -> dict[str, Any]:
    """Return the metrics of the test set from its rows."""
    return summarise(rows, subject.corpus.unit, subject.resampling)


def pseudo_perplexity(subject: Subject) -> dict[str, float]:
    """Return the pseudo-perplexity (Salazar et al. 2020) of blocks spread over the test split, and its tokens.

    It is exp of the mean nats of tokens, each of which is masked alone; {} where the settings ask for none.
    """
    wanted, reader = subject.settings.pseudo_tokens, masked.reader(subject)
    texts = [text for _, _, text in blocks(subject.records())] if wanted else []
    every = [ids[: reader.room] for ids in subject.tokenizer.encode_batch(texts)]
    whole, nats, count = sum(map(len, every)), 0.0, 0
    for i in spread(len(every), -(-wanted * len(every) // whole)) if whole else ():
        (found,) = scores(reader, [every[i]], batch_tokens=subject.evaluation.batch_tokens, alone=True)
        nats, count = nats + float(found.nats.sum()), count + int((~reader.words.special[every[i]]).sum())
    return {"pseudo_perplexity": math.exp(min(nats / count, 700.0)), "pseudo_tokens": count} if count else {}


def _samples(subject: Subject) -> list[dict[str, Any]]:
    """Return texts with one word masked, the word, and what the encoder fills in."""
    every, texts, words = blocks(subject.records()), [], []
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
