"""From fetched files to a prepared corpus: read, normalise, filter, de-duplicate, split, check for leakage, write.

Two halves. The first works on independent pieces, on the workers of the stage's executor (`pieces`). The second is
here, in one process and in the corpus's order, in two passes: the first finds duplicates and writes valid and test; the
second copies train without the texts that are also in valid or a test set, which are known only then. Where badly
aligned pairs are to be found, one more pass before both learns from all pairs (`alignment`). Sets that the
data's owners made are written before all others and stay whole: train gives way to them, and so do a valid and a test
that are cut from it. Texts are remembered as hashes in a scratch file on disk (`disk_index`), so memory is bounded by
one document, the index's cache and the labels. The result is a function of the files and the params alone, not of the
pieces or the workers.
"""

from __future__ import annotations

import json
import sqlite3
import struct
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import combinations, islice
from pathlib import Path
from typing import Any, BinaryIO

from lexmill.base import progress, storage
from lexmill.base.errors import UserError
from lexmill.compute.workers.executor import Executor, Here, Plain
from lexmill.corpora.prepared import SPLITS, PreparedCorpus, texts_of
from lexmill.corpora.preparing import alignment, filters, personal_data, pieces, readers, spans
from lexmill.corpora.preparing.deduplicate import ExactDuplicates, NearDuplicates
from lexmill.corpora.preparing.disk_index import DiskSet, open_index
from lexmill.corpora.preparing.errors import Errors
from lexmill.corpora.preparing.pieces import Lines, PreparedPiece
from lexmill.corpora.preparing.readers.labels import labels_in
from lexmill.corpora.preparing.record import shown, text_key
from lexmill.corpora.preparing.removals import Removals
from lexmill.corpora.preparing.source_files import SourceFiles, Span, Unit
from lexmill.corpora.preparing.splits import check_filled, check_pinned
from lexmill.corpora.preparing.writing import ROW, Row, SplitWriter
from lexmill.params.corpora import Corpus
from lexmill.params.readers import TaggedReader

EXACT, NEAR, LEAKED = "exact_duplicates", "near_duplicates", "also_in_valid_or_test"
ALIGNED = "drop_worst_aligned"
MOST_LABELS = 10_000
_MOST_SETS = 50
_WITH_LABELS = {"labelled": ("label", "reader.label"), "tagged": ("tag", "reader")}
_SOME_GROUPS = 1000
_SOME_RECORDS = 1_000_000
_SHOW_EVERY = 1 << 20
_TRAIN = struct.Struct("<Q")  # before each row of train: where its line begins


@dataclass(frozen=True)
class Report:
    """The result of prepare: `metrics` adds up from raw to used, `samples` shows what each filter removed."""

    metrics: dict[str, Any]
    samples: dict[str, Any]


def prepare(
    name: str, corpus: Corpus, source: str | Path, target: str | Path, executor: Executor | None = None
) -> Report:
    """Prepare the corpus `name`.

    Args:
        name, corpus: its key in params.yaml, for messages, and its entry.
        source: the folder that fetch filled.
        target: the folder to make (see `lexmill.corpora.prepared`); an old one is replaced.
        executor: reads the pieces; None: in this process.

    Raises:
        UserError, UserErrors: all errors in the files, each with file and line; nothing left after filtering; an empty
            split; a pinned group that does not exist.
        RetryableError: a worker was lost.
    """
    files = SourceFiles(source)
    with (
        storage.new_folder(target) as folder,
        storage.scratch_folder(target) as scratch,
        open_index(scratch / "index") as index,
    ):
        work = _Preparation(name, corpus, folder, scratch, index)
        work.read(files, executor or Here())
        work.copy_train()
        return work.finish()


class _Preparation:
    """The state of one `prepare`."""

    def __init__(self, name: str, corpus: Corpus, folder: Path, scratch: Path, index: sqlite3.Connection) -> None:
        self.where = f"corpora.{name}"
        self.name, self.corpus, self.folder, self.scratch = name, corpus, folder, scratch
        choice = corpus.deduplicate
        self.aligned = corpus.filters.drop_worst_aligned > 0
        self.worst = DiskSet(index, "worst_aligned")
        self.alignment: dict[str, Any] = {}
        self.exact = ExactDuplicates(index) if choice.exact else None
        self.near = NearDuplicates(index, choice) if choice.near else None
        later = {EXACT: choice.exact, ALIGNED: self.aligned, NEAR: choice.near, LEAKED: corpus.splits.keep_together}
        self.removals = Removals([*filters.active(corpus), *(step for step, active in later.items() if active)])
        self.splits = pieces.normalized_pins(corpus)
        self.index = index
        self.writers: dict[str, SplitWriter] = {}
        self.held_out: dict[str, DiskSet] = {}
        self.given = set(self.splits.files) - {"train"}
        for split in (*SPLITS, *sorted(self.given - set(SPLITS))):
            self._add(split)
        self.shared: Counter[str] = Counter()
        self.pins = {text_key(group): group for group in self.splits.pinned}
        self.pins_met: set[str] = set()
        self.labels: Counter[str] = Counter()
        self.masked: Counter[str] = Counter()
        self.raw = self.trained = self.leaks = 0
        self.done: list[PreparedPiece] = []

    def _add(self, split: str) -> None:
        """Add a split, empty."""
        if len(self.writers) == _MOST_SETS:
            raise UserError(f"{self.where}.splits: more than {_MOST_SETS} sets; is this the column of the split?")
        self.writers[split] = SplitWriter(self.folder, split, DiskSet(self.index, f"groups_of_{split}"))
        if split != "train":
            self.held_out[split] = DiskSet(self.index, f"texts_of_{split}")

    def read(self, files: SourceFiles, executor: Executor) -> None:
        """Run the first half, and the first pass over its results."""
        errors = Errors()
        unshown = 0
        common = pieces.common(self.corpus, files.folder, self.scratch)
        units = readers.units(self.corpus, files, errors)
        items = pieces.cut(units, files, executor.piece_bytes, self._spans(units, files, executor, common))
        signature_bytes = 4 * self.corpus.deduplicate.permutations if self.near else 0
        with (
            progress.bar(f"prepare {self.name}", total=files.bytes) as bar,
            open(self.scratch / "train.rows", "wb") as train,
        ):

            def advance(count: int) -> None:
                nonlocal unshown
                unshown += count
                if unshown >= _SHOW_EVERY:
                    bar.update(unshown, records=self.raw)
                    unshown = 0

            for result in executor.map(pieces.prepare_piece, common, items, advance):
                self.raw += result["raw"]
                self.masked.update(result["masked"])
                self.removals.merge(result["removals"])
                errors.merge(result["errors"], files.folder)
                if not errors:
                    self.done.append(PreparedPiece(self.scratch, result, signature_bytes))
                    if self.splits.owned:
                        self._place_given(self.done[-1])
                    elif not self.aligned:
                        self._place(self.done[-1], train)
            bar.update(unshown, records=self.raw)
            errors.raise_all()
            if self.aligned:
                self._find_worst()
            for piece in self.done if self.splits.owned or self.aligned else ():
                self._place(piece, train)
        if not self.raw:
            raise UserError("the corpus is empty: its files hold no record", files.folder)
        for writer in self.writers.values():
            writer.close()

    def _spans(
        self, units: list[Unit], files: SourceFiles, executor: Executor, common: Plain
    ) -> dict[Unit, list[tuple[Span, int]]]:
        """Find the spans of the large files."""
        large = [] if executor.alone else spans.large_units(self.corpus, units, files, executor.piece_bytes)
        if not large:
            return {}
        total = sum(files.sizes[path] for _, paths in large for path in paths)
        with progress.bar(f"prepare {self.name}: where to cut", total=total) as bar:
            return spans.find_spans(large, files, executor, common, bar.update)

    def _find_worst(self) -> None:
        """Note the pairs that are least like translations, but for those of given sets."""
        share = self.corpus.filters.drop_worst_aligned
        with progress.bar(f"prepare {self.name}: alignment", total=len(self.done)) as bar:
            worst, self.alignment = alignment.worst(self._pairs(bar.update), share, self.scratch)
        for key in worst:
            self.worst.add(key)

    def _pairs(self, advance: Callable[[int], None]) -> Iterator[alignment.Pair]:
        """Yield each pair once, but for those of given sets; a model may learn from those of train."""
        seen = DiskSet(self.index, "pairs")
        for piece in self.done:
            with piece.lines() as lines:
                for offset, row, _ in piece.rows():
                    if not row.given and seen.add(row.key):
                        source, target = texts_of(json.loads(lines.read(offset, row.line)))
                        yield alignment.Pair(row.key, source, target, piece.sets[row.split] == "train")
            advance(1)

    def _place_given(self, piece: PreparedPiece) -> None:
        """Write the records of a piece that the data's owners put into valid or a test set."""
        with piece.lines() as lines:
            for offset, row, signature in piece.rows():
                if not row.given:
                    continue
                split = piece.sets[row.split]
                if split not in self.writers:
                    self._add(split)
                self.given.add(split)
                if self.near is not None:
                    self.near(signature)  # a similar record of train gives way
                self.held_out[split].add(row.first)
                self._keep(split, lines.read(offset, row.line), row)

    def _place(self, piece: PreparedPiece, train: Any) -> None:
        """Find the duplicates of a piece, write its records of a valid or test that is cut, note those of train."""
        before = self.trained
        with piece.lines() as lines:
            for offset, row, signature in piece.rows():
                if row.given:
                    continue
                if (step := self._duplicate_or_worst(row, signature)) is not None:
                    self.removals.add(step, _shown(lines.read(offset, row.line)))
                    continue
                if row.group in self.pins:
                    self.pins_met.add(self.pins[row.group])
                split = piece.sets[row.split]
                if split == "train" or split in self.given:
                    train.write(_TRAIN.pack(offset) + ROW.pack(*row))
                    self.trained += 1
                elif not self._gives_way(row, self.given, lines, offset):
                    self.held_out[split].add(row.first)
                    self._keep(split, lines.read(offset, row.line), row)
        piece.trained = self.trained - before

    def _duplicate_or_worst(self, row: Row, signature: bytes) -> str | None:
        """Return the step that removes a record for what the corpus holds besides it."""
        if self.exact is not None and self.exact(row.key):
            return EXACT
        if self.aligned and row.key in self.worst:
            return ALIGNED
        return NEAR if self.near is not None and self.near(signature) else None

    def _gives_way(self, row: Row, to: Collection[str], lines: Lines, offset: int) -> bool:
        """Count a record whose text is also in one of these sets; return whether it is removed."""
        shared = [split for split in to if row.first in self.held_out[split]]
        self.shared.update(shared)
        if not shared or not self.corpus.splits.keep_together:
            self.leaks += bool(shared)
            return False
        self.removals.add(LEAKED, _shown(lines.read(offset, row.line)))
        return True

    def copy_train(self) -> None:
        """Make the second pass: write train without leaked texts."""
        with (
            progress.bar(f"prepare {self.name}: train", total=self.trained) as bar,
            open(self.scratch / "train.rows", "rb") as train,
        ):
            rows = _train_rows(train)
            for piece in self.done:
                with piece.lines() as lines:
                    for offset, row in islice(rows, piece.trained):
                        if not self._gives_way(row, self.held_out, lines, offset):
                            self._keep("train", lines.read(offset, row.line), row)
                bar.update(piece.trained)

    def _keep(self, split: str, line: bytes, row: Row) -> None:
        self.writers[split].write(line, row)
        if self.corpus.kind in _WITH_LABELS:
            stored, (name, key) = json.loads(line), _WITH_LABELS[self.corpus.kind]
            self.labels.update(stored["tags"] if name == "tag" else labels_in(self.corpus, stored["label"]))
            if len(self.labels) > MOST_LABELS:
                message = f"more than {MOST_LABELS:,} different {name}s; is this the column of the {name}?"
                raise UserError(f"{self.where}.{key}: {message}")

    def finish(self) -> Report:
        """Check the splits, write the manifest and report."""
        splits = {split: writer.manifest() for split, writer in self.writers.items()}
        manifest: dict[str, Any] = {
            "kind": self.corpus.kind,
            "unit": self.corpus.unit,
            "languages": list(self.corpus.languages),
            "licence": self.corpus.licence,
            "splits": splits,
        }
        if self.corpus.kind in _WITH_LABELS:
            manifest["labels"] = sorted(self.labels)
        if isinstance(self.corpus.reader, TaggedReader):
            manifest["entities"] = self.corpus.reader.scheme != "none"
        if self.corpus.tokenized:
            manifest["tokenized"] = True
        storage.write_json(self.folder / "manifest.json", manifest)
        self._check(splits)
        used = sum(split["records"] for split in splits.values())
        removed = self.removals.counts
        assert self.raw == used + sum(removed.values())
        metrics: dict[str, Any] = {"raw": self.raw, "removed": removed, "used": used}
        if self.corpus.filters.personal_data == "mask":
            metrics["masked"] = {kind: self.masked[kind] for kind in personal_data.KINDS}
        if self.aligned:
            metrics["alignment"] = self.alignment
        for metric in ("records", "groups", "characters", "bytes", "words"):
            metrics[metric] = {split: splits[split][metric] for split in splits}
        metrics["overlap"] = {"train_in_valid_or_test": self.leaks}
        for one, other in combinations(self.held_out, 2):
            metrics["overlap"][f"{one}_in_{other}"] = self.held_out[one].shared_with(self.held_out[other])
        if self.corpus.kind == "tagged":
            metrics["tags"] = dict(sorted(self.labels.items()))
        if self.given:
            metrics["gave_way"] = {split: self.shared[split] for split in self.held_out if split in self.given}
        return Report(metrics, {"filters": self.removals.samples()})

    def _check(self, splits: dict[str, Any]) -> None:
        counts = ", ".join(f"{name} {count:,}" for name, count in self.removals.counts.items() if count)
        if not any(split["records"] for split in splits.values()):
            raise UserError(f"{self.where}: nothing is left of {self.raw:,} records; removed: {counts}")
        if self.trained and not splits["train"]["records"]:
            message = f"all {self.trained:,} training records have a text that is also in valid or test"
            raise UserError(f"{self.where}.splits: {message}; check reader.group and splits")
        check_pinned(self.splits, self.pins_met, self._some_groups(), self.where)
        groups = {split: counts["groups"] for split, counts in splits.items()}
        check_filled(self.splits, groups, self.corpus.unit, self.where, self.given)
        if self.corpus.kind in _WITH_LABELS and len(self.labels) < 2:
            name, _ = _WITH_LABELS[self.corpus.kind]
            raise UserError(f"{self.where}: one {name} only, '{next(iter(self.labels))}'; two are needed")

    def _some_groups(self) -> list[str]:
        """Some of the corpus's groups, if a pinned one is missing: enough to find the nearest name in most cases."""
        if len(self.pins_met) == len(self.splits.pinned):
            return []
        made = PreparedCorpus(self.folder)
        groups = (record["group"] for split in SPLITS for record in made.records(split))
        return list(islice(dict.fromkeys(islice(groups, _SOME_RECORDS)), _SOME_GROUPS))


def _train_rows(stream: BinaryIO) -> Iterator[tuple[int, Row]]:
    size = _TRAIN.size + ROW.size
    while block := stream.read(1024 * size):
        for at in range(0, len(block), size):
            yield _TRAIN.unpack_from(block, at)[0], Row._make(ROW.unpack_from(block, at + _TRAIN.size))


def _shown(line: bytes) -> str:
    return shown(texts_of(json.loads(line)))
