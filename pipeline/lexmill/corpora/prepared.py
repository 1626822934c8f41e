"""A prepared corpus: JSON lines in shards for each split, and a manifest; all other packages read it through this one.

A record is `{"id", "group"}` and, by the kind of corpus,

* text: `"text"`.
* labelled: `"text"`, `"label"` (of a set `billing;refund`, or `none`), and `"second"` where a pair is labelled.
* tagged: `"words"`, `"tags"`, with entities in iob2.
* parallel: `"source"`, `"target"`.
* conversation: `"messages": [{"role", "content"}]`, the last one is the answer; perhaps `"rejected"`, a worse one.
* questions: `"question"`, `"context"`, `"answers": [{"text", "start"}]`, spans of the context by their first character;
  none: no answer is there.

Reading streams: memory is one record.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from lexmill.base.errors import UserError
from lexmill.base.outside import parsing, read_json_object

SPLITS = ("train", "valid", "test")
"""The splits that every corpus has; pairs that a model writes have train alone."""
BETWEEN_LABELS, NO_LABELS = ";", "none"
"""What is between the labels of a set, and the label of a text that has none."""


def in_order(splits: Iterable[str]) -> list[str]:
    """Return names of splits: those that every corpus has first, then further test sets by name."""
    names = set(splits)
    return [*(split for split in SPLITS if split in names), *sorted(names.difference(SPLITS))]


def labels_of(label: str) -> list[str]:
    """Return the labels of a set, sorted, each once; blanks around them do not count."""
    return sorted({part.strip() for part in label.split(BETWEEN_LABELS)} - {"", NO_LABELS})


class PreparedCorpus:
    """A folder written by the stage prepare.

    Attributes:
        folder, manifest: its path and its manifest.json.
        kind: text, labelled, tagged, parallel, conversation or questions.
        unit: what a group is, the unit of intervals.
        languages: one language, or source and target language.
        labels: the sorted labels of a labelled corpus, or tags of a tagged one; else empty.
        entities: whether the tags mark entities.
        tokenized: whether blanks separate the tokens of its texts.
    """

    def __init__(self, folder: str | Path) -> None:
        """Raise `UserError` when the folder holds no prepared corpus."""
        self.folder = Path(folder)
        path = self.folder / "manifest.json"
        if not path.is_file():
            raise UserError("no prepared corpus here; run the stage prepare first", self.folder)
        self.manifest: dict[str, Any] = read_json_object(path)
        with parsing("not what the stage prepare writes; run it again", path):
            self.kind: str = self.manifest["kind"]
            self.unit: str = self.manifest["unit"]
            self.languages: tuple[str, ...] = tuple(self.manifest["languages"])
            self.labels: tuple[str, ...] = tuple(self.manifest.get("labels", ()))
            self.entities = bool(self.manifest.get("entities", False))
            self.tokenized = bool(self.manifest.get("tokenized", False))
            self._counts = {name: int(split["records"]) for name, split in self.manifest["splits"].items()}
            self._shards = {
                name: [str(shard["path"]) for shard in split["shards"]]
                for name, split in self.manifest["splits"].items()
            }

    @property
    def further_tests(self) -> tuple[str, ...]:
        """The names of the test sets besides `test`."""
        return tuple(split for split in in_order(self._counts) if split not in SPLITS)

    def count(self, split: str) -> int:
        """The number of records of a split."""
        return self._counts[self._known(split)]

    def _known(self, split: str) -> str:
        if split not in self._counts:
            raise UserError(f"it lacks the split '{split}'; run the stage prepare again", self.folder / "manifest.json")
        return split

    def records(self, split: str) -> Iterator[dict[str, Any]]:
        """The records of `train`, `valid`, `test` or a further test set, in corpus order, one at a time."""
        for shard in self._shards[self._known(split)]:
            path = self.folder / shard
            try:
                with open(path, encoding="utf-8", newline="\n") as stream:
                    for line in stream:
                        yield json.loads(line)
            except FileNotFoundError:
                raise UserError("the file is missing; run the stage prepare again", path) from None
            except (json.JSONDecodeError, UnicodeDecodeError) as error:
                raise UserError(f"damaged ({error}); run the stage prepare again", path) from None


def texts_of(stored: dict[str, Any]) -> tuple[str, ...]:
    """The text or both sides of a stored record.

    Of a conversation what comes before the answer, and the answers; of a question its context, and the question. The
    first is what no two splits share.
    """
    if "messages" in stored:
        *before, answer = (message["content"] for message in stored["messages"])
        return (" ".join(before), answer, *([stored["rejected"]] if "rejected" in stored else []))
    if "context" in stored:
        return stored["context"], stored["question"]
    if "words" in stored:
        return (" ".join(stored["words"]),)
    if "second" in stored:
        return stored["text"], stored["second"]
    return (stored["source"], stored["target"]) if "source" in stored else (stored["text"],)


def shown(stored: dict[str, Any]) -> str:
    """The texts of a stored record for display: `source ||| target`."""
    return " ||| ".join(texts_of(stored))
