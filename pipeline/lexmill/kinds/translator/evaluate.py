"""Evaluates a translator on a test split. Cost: beam search over it, about beam_size decoder passes a target token."""

from __future__ import annotations

from collections.abc import Callable

from lexmill.base import progress
from lexmill.evaluation.bootstrap import Resampling
from lexmill.evaluation.rows import Row, spread
from lexmill.evaluation.subject import Evaluated, Subject
from lexmill.kinds.translator.metrics import summarise, translator_rows
from lexmill.kinds.translator.predict import translate_lines

SAMPLES = 40
CHUNK = 256  # lines between progress updates; a translation does not depend on the lines around it


def evaluate(subject: Subject) -> Evaluated:
    """Translate the test split and score the translations."""
    with progress.bar(f"evaluate {subject.name}", subject.corpus.count("test")) as bar:
        found, truncated = _translated(subject, bar.update)
    how = Resampling.of(subject.evaluation, subject.seed)
    metrics = summarise(found, subject.corpus.unit, how, subject.corpus.languages[1])
    samples = [
        {key: found[i][key] for key in ("source", "reference", "hypothesis")} for i in spread(len(found), SAMPLES)
    ]
    return Evaluated(rows=found, metrics={**metrics, "truncated_sources": truncated}, samples={"samples": samples})


def rows(subject: Subject) -> list[Row]:
    """Return only the rows."""
    return _translated(subject)[0]


def _translated(subject: Subject, advance: Callable[[int], object] = lambda _: None) -> tuple[list[Row], int]:
    """Return one row per record, in order, and how many sources were cut; `advance` gets how many more are done."""
    records = list(subject.corpus.records("test"))
    # Lines of similar length together, for little padding.
    order = sorted(range(len(records)), key=lambda i: (len(records[i]["source"]), i))
    hypotheses = [""] * len(records)
    truncated = 0
    for start in range(0, len(order), CHUNK):
        chunk = order[start : start + CHUNK]
        lines = [records[i]["source"] for i in chunk]
        found = translate_lines(
            subject.module, subject.tokenizer, lines, subject.settings.beam, subject.evaluation.batch_tokens
        )
        for i, translation in zip(chunk, found, strict=True):
            hypotheses[i] = translation.text
            truncated += translation.truncated
        advance(len(chunk))
    return translator_rows(records, hypotheses, subject.corpus.languages[1]), truncated
