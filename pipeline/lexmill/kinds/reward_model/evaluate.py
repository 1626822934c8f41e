"""Evaluates a reward model on a test split. Cost: a forward pass over both answers of each pair."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from lexmill.base import progress
from lexmill.base.errors import UserError
from lexmill.base.storage import sha256_bytes
from lexmill.data.conversations import messages_of
from lexmill.evaluation.rows import Row, spread
from lexmill.evaluation.subject import Evaluated, Subject
from lexmill.kinds.reward_model.metrics import summarise
from lexmill.kinds.reward_model.predict import rewards

SAMPLES = 8
_CHUNK = 64  # pairs between progress updates


def evaluate(subject: Subject) -> Evaluated:
    """Rate both answers of each conversation of the test split."""
    found, records = rows(subject), list(subject.records())
    samples = [
        {
            "input": json.dumps(list(messages_of(records[i])), ensure_ascii=False),
            "prompt": records[i]["messages"][-2]["content"],
            "chosen": records[i]["messages"][-1]["content"],
            "rejected": records[i]["rejected"],
            "reward": found[i]["chosen"],
            "rejected_reward": found[i]["rejected"],
        }
        for i in spread(len(found), SAMPLES)
    ]
    return Evaluated(rows=found, metrics=metrics(subject, found), samples={"samples": samples})


def rows(subject: Subject) -> list[Row]:
    """Return one row for each pair, in order; raise `UserError` where one has no rejected answer."""
    records = list(subject.records())
    if any("rejected" not in record for record in records):
        raise UserError(f"a conversation of {subject.split} has no rejected answer", subject.corpus.folder)
    found: list[Row] = []
    with progress.bar(f"evaluate {subject.words}", len(records)) as bar:
        for start in range(0, len(records), _CHUNK):
            some = records[start : start + _CHUNK]
            both = [messages_of(one) for one in some] + [messages_of(one, one["rejected"]) for one in some]
            values = rewards(subject.module, subject.tokenizer, both, subject.evaluation.batch_tokens)
            for record, chosen, rejected in zip(some, values, values[len(some) :], strict=False):
                text = json.dumps([record["messages"], record["rejected"]], ensure_ascii=False)
                found.append(
                    {
                        "id": record["id"],
                        "group": record["group"],
                        "chosen": chosen,
                        "rejected": rejected,
                        "text_sha256": sha256_bytes(text.encode("utf-8")),
                    }
                )
            bar.update(len(some))
    return found


def metrics(subject: Subject, rows: Sequence[Row]) -> dict[str, Any]:
    """Return the metrics of the test set from its rows."""
    return summarise(rows, subject.corpus.unit, subject.resampling)
