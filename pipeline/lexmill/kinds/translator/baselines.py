"""What a translator must beat: the copied source. Cost: sacrebleu's statistics of the test split, once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lexmill.corpora.prepared import PreparedCorpus
from lexmill.evaluation.bootstrap import Resampling
from lexmill.evaluation.rows import Row
from lexmill.evaluation.subject import Baseline
from lexmill.kinds.translator.metrics import splitter_of, summarise, translator_rows
from lexmill.params import Baseline as Chosen


def baselines(_: Chosen, corpus: PreparedCorpus, how: Resampling) -> Iterator[Baseline]:
    """Yield it."""
    splits = splitter_of(corpus)
    rows = copy_source(list(corpus.records("test")), splits)
    yield Baseline("copy_source", rows, summarise(rows, corpus.unit, how, splits))


def copy_source(test: Sequence[dict[str, Any]], splits: str) -> list[Row]:
    """Return rows of a translator that copies each source; names, numbers and placeholders score."""
    return translator_rows(test, [record["source"] for record in test], splits)
