"""Documents of one corpus of a mixture that another one holds out: figures on those are too good."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from lexmill.data.shards import TokenShards, read_manifest


def held_out_in_train(members: Mapping[str, Path]) -> dict[str, dict[str, int]]:
    """Return how many documents of each member's train another member has outside train: {member: {other: count}}.

    Documents are the same if all their tokens are; of pairs, if their sources are. Members without any are left out.

    Args:
        members: the folder of token shards of each corpus.

    Cost: a pass over the train splits, some microseconds a document; 8 bytes for each held-out document.
    """
    held_out = {
        name: {key for split in read_manifest(folder)["splits"] if split != "train" for key in _keys(folder, split)}
        for name, folder in members.items()
    }
    found: dict[str, dict[str, int]] = {}
    for name, folder in members.items():
        others = {other: keys for other, keys in held_out.items() if other != name}
        counts = dict.fromkeys(others, 0)
        for key in _keys(folder, "train"):
            for other, keys in others.items():
                counts[other] += key in keys
        if some := {other: count for other, count in counts.items() if count}:
            found[name] = some
    return found


def _keys(folder: Path, split: str) -> Iterator[bytes]:
    sides = read_manifest(folder)["splits"].get(split, {})
    if not sides:
        return
    shards = TokenShards(folder, split, "source" if "source" in sides else "text")
    for i in range(len(shards)):
        yield hashlib.blake2b(shards.document(i).tobytes(), digest_size=8).digest()
