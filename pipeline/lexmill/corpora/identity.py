"""The identity of a prepared corpus's splits, and of what metrics were measured on.

Stages write the latter into each file of metrics of a test set, under `MEASURED_ON`, so that metrics of other texts or
other tokens are recognised by their fingerprints; names stay the same when data changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lexmill.base import storage
from lexmill.corpora.prepared import PreparedCorpus

MEASURED_ON = "measured_on"


def split_sha256(manifest: Mapping[str, Any], split: str) -> str:
    """Return the hash of a split of a prepared corpus, from its manifest."""
    return storage.fingerprint([shard["sha256"] for shard in manifest["splits"][split]["shards"]])


def measured_on(corpus: PreparedCorpus, tokenizer: str | None, further: Sequence[str] = ()) -> dict[str, Any]:
    """Return what metrics are measured on: `test`, `tests` (by further test set) and `tokenizer`, as sha256.

    Args:
        tokenizer: the fingerprint of the tokenizer, where there are metrics over its tokens; else None.
        further: the further test sets that were measured.
    """
    found: dict[str, Any] = {"test": split_sha256(corpus.manifest, "test")}
    if further:
        found["tests"] = {split: split_sha256(corpus.manifest, split) for split in further}
    if tokenizer is not None:
        found["tokenizer"] = tokenizer
    return found
