"""Translating beside the peers: all sides read the same weights and give the same greedy translations."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks import translating
from lexmill.base import storage
from tests.registry.test_ctranslate2_export import translator


def corpus(target: Path, lines: list[str]) -> Path:
    """A prepared corpus of one split."""
    target.mkdir()
    records = [{"id": str(i), "group": str(i), "source": line, "target": line.upper()} for i, line in enumerate(lines)]
    storage.write_text(target / "test-00000.jsonl", "".join(json.dumps(one) + "\n" for one in records))
    splits = {"test": {"records": len(records), "shards": [{"path": "test-00000.jsonl"}]}}
    manifest = {"kind": "parallel", "unit": "sentence", "languages": ["en", "de"], "splits": splits}
    storage.write_json(target / "manifest.json", manifest)
    return target


def test_all_sides_give_the_same_greedy_translations(tmp_path: Path) -> None:
    model, lines = translator(tmp_path / "model"), ["one", "two words", "a longer line"]
    translating.export(model, tmp_path / "transformers", "made")
    translating.export_ctranslate2(model, tmp_path / "float32", "made")
    found = [
        translating.ours(model, 1)(lines),
        translating.transformers_side(tmp_path / "transformers", 1)(lines),
        translating.ctranslate2_side(tmp_path / "float32", 1, 48)(lines),
    ]
    assert len(set(found[0])) > 1
    # What bounds a translation's length differs; up to there they are the same.
    for rows in zip(*found, strict=True):
        assert all(row.startswith(rows[0]) for row in rows)


def test_a_comparison_names_the_sides_with_their_bleu(tmp_path: Path) -> None:
    made = corpus(tmp_path / "corpus", ["one", "two words"])
    found = translating.compare(translator(tmp_path / "model"), made, 1, sentences=2, beam=2)
    assert [one.peer[0].split(" (")[0] for one in found] == ["transformers", "CTranslate2", "CTranslate2 int8"]
    assert all("BLEU" in one.ours[0] and one.ratio > 0 for one in found)
