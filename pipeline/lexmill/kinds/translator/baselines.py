"""What a translator must beat: the source, copied. Cost: sacrebleu's statistics of the test split, once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lexmill.corpora.prepared import PreparedCorpus
from lexmill.evaluation.bootstrap import Resampling
from lexmill.evaluation.rows import Row
from lexmill.evaluation.subject import Baseline
from lexmill.kinds.translator.metrics import summarise, translator_rows
from lexmill.params import Baseline as Chosen


def baselines(_: Chosen, corpus: PreparedCorpus, how: Resampling) -> Iterator[Baseline]:
    """The one."""
    rows = copy_source(list(corpus.records("test")), corpus.languages[1])
    yield Baseline("copy_source", rows, summarise(rows, corpus.unit, how, corpus.languages[1]))


def copy_source(test: Sequence[dict[str, Any]], language: str) -> list[Row]:
    """Rows of a translator that gives each source back; names, numbers and placeholders then score."""
    return translator_rows(test, [record["source"] for record in test], language)
