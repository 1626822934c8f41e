"""What must be beaten: the bucket that train has most of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from lexmill.corpora.prepared import PreparedCorpus
from lexmill.evaluation.bootstrap import Resampling
from lexmill.evaluation.subject import Baseline
from lexmill.kinds.length_bucket import bucket
from lexmill.kinds.length_bucket.metrics import row, summarise
from lexmill.params import Baseline as Chosen


def baselines(chosen: Chosen, corpus: PreparedCorpus, how: Resampling) -> Iterator[Baseline]:
    """The one."""
    long_from = chosen.settings["long_from"]
    most = Counter(bucket(record["text"], long_from) for record in corpus.records("train")).most_common(1)[0][0]
    rows = [row(record, bucket(record["text"], long_from), most) for record in corpus.records("test")]
    yield Baseline("majority", rows, summarise(rows, corpus.unit, how))
