"""From fetched files to a prepared corpus: read, normalise, filter, de-duplicate, split, check for leakage, write.

Two passes. The first reads the files and writes valid and test; train goes to a scratch file. The second copies train
and leaves out what also stands in valid or test, which is only known then. All that is remembered of the texts is
hashes in a scratch file on disk (see `disk_index`), so memory does not grow with the corpus: it is bounded by one
document, the index's cache and the labels. The result is a function of the files and the choices alone.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lexmill import progress, storage
from lexmill.corpora.prepared import texts_of
from lexmill.corpora.preparing import filters, readers
from lexmill.corpora.preparing.deduplicate import ExactDuplicates, NearDuplicates
from lexmill.corpora.preparing.disk_index import DiskSet, open_index
from lexmill.corpora.preparing.faults import Faults
from lexmill.corpora.preparing.normalize import normalize, normalize_record
from lexmill.corpora.preparing.record import Record, text_key
from lexmill.corpora.preparing.removals import Removals
from lexmill.corpora.preparing.source_files import SourceFiles
from lexmill.corpora.preparing.splits import SPLITS, check_filled, check_pinned, split_of
from lexmill.corpora.preparing.writing import SplitWriter, json_line, to_json
from lexmill.errors import UserError
from lexmill.params import Corpus, Splits

EXACT, NEAR, LEAKED = "exact_duplicates", "near_duplicates", "also_in_valid_or_test"
MOST_LABELS = 10_000
_SOME_GROUPS = 1000
_SHOW_EVERY = 1 << 20


@dataclass(frozen=True)
class Report:
    """What prepare did: `metrics` adds up from raw to used, `samples` shows what each filter removed."""

    metrics: dict[str, Any]
    samples: dict[str, Any]


def prepare(name: str, corpus: Corpus, source: str | Path, target: str | Path) -> Report:
    """Prepare the corpus `name`.

    Args:
        name: its key in params.yaml, for messages.
        corpus: its choices.
        source: the folder that fetch filled.
        target: the folder to make (see `lexmill.corpora.prepared`); an old one is replaced.

    Raises:
        UserError, UserErrors: all faults of the files, each with file and line; nothing left after filtering; a split
            that came out empty; a pinned group that does not exist.
    """
    files = SourceFiles(source)
    target = Path(target)
    with storage.new_folder(target) as folder, _scratch(target) as scratch, open_index(scratch / "index") as index:
        work = _Preparation(name, corpus, folder, scratch / "train.jsonl", index)
        work.read(files)
        work.copy_train()
        return work.finish()


@contextmanager
def _scratch(target: Path) -> Iterator[Path]:
    """A scratch folder beside the target; `new_folder` of a later run removes what a killed run left of it."""
    scratch = target.with_name(f".{target.name}.{os.getpid()}.scratch.tmp")
    scratch.mkdir()
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch)


class _Preparation:
    """The state of one `prepare`."""

    def __init__(self, name: str, corpus: Corpus, folder: Path, train: Path, index: sqlite3.Connection) -> None:
        self.where = f"corpora.{name}"
        self.name, self.corpus, self.folder, self.train = name, corpus, folder, train
        self.steps: dict[str, Callable[[Record], bool]] = dict(filters.active(corpus))
        if corpus.deduplicate.exact:
            self.steps[EXACT] = ExactDuplicates(index)
        if corpus.deduplicate.near:
            self.steps[NEAR] = NearDuplicates(index, corpus.deduplicate)
        leaked = [LEAKED] if corpus.splits.keep_together else []
        self.removals = Removals([*self.steps, *leaked])
        self.splits = _normalized_pins(corpus)
        self.writers = {split: SplitWriter(folder, split, DiskSet(index, f"groups_of_{split}")) for split in SPLITS}
        self.held_out = {split: DiskSet(index, f"texts_of_{split}") for split in ("valid", "test")}
        self.pins_met: set[str] = set()
        self.some_groups: dict[str, None] = {}
        self.labels: Counter[str] = Counter()
        self.raw = self.trained = self.leaks = 0

    def read(self, files: SourceFiles) -> None:
        """The first pass."""
        faults = Faults()
        unshown = 0
        with (
            progress.bar(f"prepare {self.name}", total=files.bytes) as bar,
            open(self.train, "wb") as train,
        ):

            def advance(count: int) -> None:
                nonlocal unshown
                unshown += count
                if unshown >= _SHOW_EVERY:
                    bar.update(unshown, records=self.raw)
                    unshown = 0

            for record in readers.read(self.corpus, files, faults, advance):
                self.raw += 1
                if faults:
                    continue  # read on for the other faults; nothing will be written
                self._place(record, train)
            bar.update(unshown, records=self.raw)
        faults.raise_all()
        if not self.raw:
            raise UserError("the corpus is empty: its files hold no record", files.folder)
        for writer in self.writers.values():
            writer.close()

    def _place(self, record: Record, train: Any) -> None:
        normalize_record(record, self.corpus.kind, self.corpus.normalization)
        for step, hits in self.steps.items():
            if hits(record):
                self.removals.add(step, record.shown)
                return
        group = record.group if record.group is not None else text_key(record.text).hex()
        split = split_of(group, self.splits)
        if group in self.splits.pinned:
            self.pins_met.add(group)
        if len(self.some_groups) < _SOME_GROUPS:
            self.some_groups[group] = None
        stored = to_json(record, group)
        if split == "train":
            train.write(json_line(stored))
            self.trained += 1
            return
        self.held_out[split].add(text_key(record.text))
        self._keep(split, stored)

    def copy_train(self) -> None:
        """The second pass."""
        with progress.bar(f"prepare {self.name}: train", total=self.trained) as bar, open(self.train, "rb") as train:
            for done, line in enumerate(train, 1):
                stored = json.loads(line)
                texts = texts_of(stored)
                key = text_key(texts[0])
                leaks = any(key in held for held in self.held_out.values())
                self.leaks += leaks
                if leaks and self.corpus.splits.keep_together:
                    self.removals.add(LEAKED, " ||| ".join(texts))
                else:
                    self._keep("train", stored)
                if done % 1000 == 0:
                    bar.update(1000)

    def _keep(self, split: str, stored: dict[str, str]) -> None:
        self.writers[split].write(stored)
        if "label" in stored:
            self.labels[stored["label"]] += 1
            if len(self.labels) > MOST_LABELS:
                message = f"more than {MOST_LABELS:,} different labels; is this the column of the label?"
                raise UserError(f"{self.where}.reader.label: {message}")

    def finish(self) -> Report:
        """Check the splits, write the manifest and report."""
        splits = {split: writer.manifest() for split, writer in self.writers.items()}
        self._check(splits)
        manifest = {
            "kind": self.corpus.kind,
            "unit": self.corpus.unit,
            "languages": list(self.corpus.languages),
            "licence": self.corpus.licence,
            "splits": splits,
        }
        if self.corpus.kind == "labelled":
            manifest["labels"] = sorted(self.labels)
        storage.write_json(self.folder / "manifest.json", manifest)
        used = sum(split["records"] for split in splits.values())
        removed = self.removals.counts
        assert self.raw == used + sum(removed.values())
        metrics: dict[str, Any] = {"raw": self.raw, "removed": removed, "used": used}
        for figure in ("records", "groups", "characters", "bytes", "words"):
            metrics[figure] = {split: splits[split][figure] for split in SPLITS}
        metrics["overlap"] = {
            "train_in_valid_or_test": 0 if self.corpus.splits.keep_together else self.leaks,
            "valid_in_test": self.held_out["valid"].shared_with(self.held_out["test"]),
        }
        return Report(metrics, {"filters": self.removals.samples()})

    def _check(self, splits: dict[str, Any]) -> None:
        counts = ", ".join(f"{name} {count:,}" for name, count in self.removals.counts.items() if count)
        if not any(split["records"] for split in splits.values()):
            raise UserError(f"{self.where}: nothing is left of {self.raw:,} records; removed: {counts}")
        if self.trained and not splits["train"]["records"]:
            message = f"all {self.trained:,} training records have a text that also stands in valid or test"
            raise UserError(f"{self.where}.splits: {message}; look at reader.group and splits")
        check_pinned(self.splits, self.pins_met, list(self.some_groups), self.where)
        check_filled(self.splits, {s: splits[s]["groups"] for s in SPLITS}, self.corpus.unit, self.where)
        if self.corpus.kind == "labelled" and len(self.labels) < 2:
            raise UserError(f"{self.where}: one label only, '{next(iter(self.labels))}'; a classifier needs two")


def _normalized_pins(corpus: Corpus) -> Splits:
    """The splits with pinned groups in the corpus's normal form, in which groups are compared."""
    pinned = {normalize(group, corpus.normalization): split for group, split in corpus.splits.pinned.items()}
    return replace(corpus.splits, pinned=pinned)
