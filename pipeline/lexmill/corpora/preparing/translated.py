"""A parallel corpus with one side written by a model: real sentences, and their translations.

* Back-translation (Sennrich et al. 2016): a model of the other direction writes the source of real target sentences;
  a tag marks these sources for the learner (Caswell et al. 2019).
* Distillation (Kim and Rush 2016): a teacher writes the target of real sources.

The corpus has a train split only: whoever learns from it is validated and tested on real pairs, and no sentence of
their valid and test sets is translated. Sentences are read in pools, each translated in the order of length, for little
padding, and written in the order of the corpus.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from lexmill.base import storage
from lexmill.base.errors import UserError
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.corpora.preparing.disk_index import DiskSet, open_index
from lexmill.corpora.preparing.record import Record, text_key
from lexmill.corpora.preparing.removals import Removals
from lexmill.corpora.preparing.writing import Row, SplitWriter, json_line, to_json
from lexmill.params.corpora import Translation

HELD_OUT, TRUNCATED, EMPTY = "in_held_out", "longer_than_the_model_reads", "empty_translations"
SAMPLES = 20
POOL = 8192  # sentences


@dataclass(frozen=True)
class Translated:
    """A translation; `truncated`: of the beginning of its sentence, which was longer than the model reads."""

    text: str
    truncated: bool


def write_translated(
    target: Path,
    choice: Translation,
    corpus: PreparedCorpus,
    held_out: PreparedCorpus,
    translate: Callable[[list[str]], list[Translated]],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Translate a corpus, write the pairs, and return metrics and samples.

    Args:
        target: the folder to make; an old one is replaced.
        choice: what is translated, and how the pairs are made of it.
        corpus, held_out: the corpora that it names.
        translate: translates sentences, in their order.

    Raises:
        UserError: no pair is left.
    """
    removals = Removals([HELD_OUT, TRUNCATED, EMPTY])
    given = "target" if choice.writes == "source" else "source"
    known = {
        text_key(record[given])
        for split in held_out.manifest["splits"]
        if split != "train"
        for record in held_out.records(split)
    }
    raw, samples = 0, list[str]()
    sentences = _sentences(corpus, choice.side)
    with (
        storage.new_folder(target) as folder,
        storage.scratch_folder(target) as scratch,
        open_index(scratch / "index") as index,
    ):
        writer = SplitWriter(folder, "train", DiskSet(index, "groups_of_train"))
        while pool := list(islice(sentences, POOL)):
            raw += len(pool)
            kept = [sentence for sentence in pool if text_key(sentence.text) not in known]
            for sentence in pool:
                if text_key(sentence.text) in known:
                    removals.add(HELD_OUT, sentence.text)
            order = sorted(range(len(kept)), key=lambda i: (len(kept[i].text), i))
            made = dict(zip(order, translate([kept[i].text for i in order]), strict=True))
            for i, sentence in enumerate(kept):
                text, truncated = made[i].text.strip(), made[i].truncated
                if truncated or not text:
                    removals.add(TRUNCATED if truncated else EMPTY, sentence.text)
                    continue
                pair = _pair(sentence, text, choice)
                stored = to_json(pair, sentence.group or "")
                line = json_line(stored)
                writer.write(line, Row.of(stored, 0, line))
                if len(samples) < SAMPLES:
                    samples.append(pair.shown)
        split = writer.manifest()
        if not split["records"]:
            why = ", ".join(f"{name} {count:,}" for name, count in removals.counts.items())
            raise UserError(f"none of its {raw:,} sentences gave a pair; {why}", corpus.folder)
        manifest = {
            "kind": "parallel",
            "unit": corpus.unit,
            "languages": list(held_out.languages),
            "licence": corpus.manifest["licence"],
            "splits": {"train": split},
            **({"tokenized": True} if held_out.tokenized else {}),
        }
        storage.write_json(folder / "manifest.json", manifest)
    counts = {key: split[key] for key in ("groups", "characters", "bytes", "words")}
    metrics = {"raw": raw, "removed": removals.counts, "used": split["records"], **counts}
    return metrics, {"filters": removals.samples(), "pairs": samples}


def _sentences(corpus: PreparedCorpus, side: str) -> Iterator[Record]:
    """Yield the sentences of the train split: one side of each pair, or each line of a text that is not blank."""
    for record in corpus.records("train"):
        lines = record["text"].split("\n") if side == "text" else [record[side]]
        for number, line in enumerate(lines, 1):
            name = record["id"] if len(lines) == 1 else f"{record['id']}:{number}"
            if line.strip():
                yield Record(name, record["group"], line.strip())


def _pair(sentence: Record, translation: str, choice: Translation) -> Record:
    sides = (translation, sentence.text) if choice.writes == "source" else (sentence.text, translation)
    return Record(sentence.id, sentence.group, f"{choice.tag} {sides[0]}" if choice.tag else sides[0], sides[1])
