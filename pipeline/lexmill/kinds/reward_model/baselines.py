"""What a reward model must beat: preferring the longer answer."""

from __future__ import annotations

import json
from collections.abc import Iterator

from lexmill.base.storage import sha256_bytes
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.evaluation.bootstrap import Resampling
from lexmill.evaluation.subject import Baseline
from lexmill.kinds.reward_model.metrics import summarise
from lexmill.params import Baseline as Chosen


def baselines(_: Chosen, corpus: PreparedCorpus, how: Resampling) -> Iterator[Baseline]:
    """Yield the longer answer: an answer's reward is its length in characters."""
    rows = [
        {
            "id": record["id"],
            "group": record["group"],
            "chosen": len(record["messages"][-1]["content"]),
            "rejected": len(record["rejected"]),
            "text_sha256": sha256_bytes(
                json.dumps([record["messages"], record["rejected"]], ensure_ascii=False).encode("utf-8")
            ),
        }
        for record in corpus.records("test")
        if "rejected" in record
    ]
    yield Baseline("longer_answer", rows, summarise(rows, corpus.unit, how))
