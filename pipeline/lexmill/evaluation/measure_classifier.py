"""A classifier on records of a test split: its rows, as the stage and the registry need them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

from lexmill.decoding.classify import classify_texts
from lexmill.evaluation.classification import classifier_row
from lexmill.evaluation.rows import Row
from lexmill.params import Evaluation

CHUNK = 512  # texts between two signs of progress; an answer does not depend on the texts around it


def classified(
    module: nn.Module,
    tokenizer: Any,
    config: Mapping[str, Any],
    records: Sequence[dict[str, str]],
    evaluation: Evaluation,
    *,
    advance: Callable[[int], object] = lambda _: None,
) -> list[Row]:
    """One row a record, in order.

    Args:
        module: the network, on its device.
        config: the model's: `labels` and `max_tokens`.
        evaluation: the size of a forward pass.
        advance: told how many more are done.
    """
    rows: list[Row] = []
    for start in range(0, len(records), CHUNK):
        chunk = records[start : start + CHUNK]
        texts = [record["text"] for record in chunk]
        found = classify_texts(module, tokenizer, texts, config["max_tokens"], evaluation.batch_tokens)
        rows += [classifier_row(record, config["labels"], p) for record, p in zip(chunk, found, strict=True)]
        advance(len(chunk))
    return rows
