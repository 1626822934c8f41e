"""BERT classifiers on a pretrained encoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lexmill.models.bert.model import BertClassifier


def build(config: Mapping[str, Any]) -> BertClassifier:
    """A classifier with fresh weights from a model folder's config: shape, vocab_size, labels, dropout."""
    from lexmill.models.bert.model import BertClassifier

    return BertClassifier(config["shape"], config["vocab_size"], len(config["labels"]), config["dropout"])


__all__ = ["build"]
