"""Prepared corpora of a few records, as the stage prepare leaves them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lexmill.base.storage import sha256_file


def write_prepared(
    folder: Path, kind: str, splits: Mapping[str, Sequence[Mapping[str, Any]]], languages: Sequence[str] = ("en",)
) -> None:
    """Write a corpus; a record's id and group are its number where it has none."""
    folder.mkdir(parents=True)
    manifest: dict[str, Any] = {"kind": kind, "unit": "item", "languages": list(languages), "licence": "", "splits": {}}
    labels = {record["label"] for records in splits.values() for record in records if "label" in record}
    if kind == "labelled":
        manifest["labels"] = sorted(labels)
    for split in dict.fromkeys(("train", "valid", "test", *splits)):
        records = [{"id": f"{split}{i}", "group": f"{split}{i}"} | dict(r) for i, r in enumerate(splits.get(split, ()))]
        name = f"{split}-00000.jsonl"
        text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
        shard = {"path": name, "records": len(records), "sha256": sha256_file(folder / name)}
        counts = {"records": len(records), "bytes": len(text.encode()), "characters": len(text)}
        manifest["splits"][split] = {**counts, "shards": [shard] if records else []}
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
