"""The split of a record: given by the data's owners, or a function of its group and the salt alone.

A group's hash is a point in [0, 1): test takes the lowest points, valid the highest, train the middle. So a larger
corpus moves no group, and a larger share of valid or test takes groups from train only.
"""

from __future__ import annotations

import glob
import hashlib
import re
from collections.abc import Collection, Sequence
from pathlib import Path, PurePosixPath

from lexmill.base.errors import UserError, UserErrors
from lexmill.base.shown import value_text
from lexmill.base.strict import nearest
from lexmill.corpora.fetching.globs import fits
from lexmill.corpora.prepared import SPLITS
from lexmill.corpora.preparing.errors import Errors
from lexmill.corpora.preparing.source_files import Unit, listed, matches, uncompressed
from lexmill.params.corpora import Splits

_LONGEST = 60  # characters of a set's name
_ALSO = {"training": "train", "validation": "valid", "val": "valid", "dev": "valid", "testing": "test"}


def point(group: str, salt: str) -> float:
    """The group's place in [0, 1): the first 53 bits of the sha256 of salt and group."""
    digest = hashlib.sha256(f"{salt}\0{group}".encode()).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) / (1 << 53)


def split_of(group: str, splits: Splits) -> str:
    """`train`, `valid` or `test`."""
    pinned = splits.pinned.get(group)
    if pinned is not None:
        return pinned
    place = point(group, splits.salt)
    if place < splits.test:
        return "test"
    return "valid" if place >= 1 - splits.valid else "train"


class GivenFiles:
    """The sets that `splits.files` puts files in. Cost of a file: one look-up, and a match with each true glob."""

    def __init__(self, splits: Splits) -> None:
        self._all = [(name, pattern) for name, patterns in splits.files.items() for pattern in patterns]
        self._plain: dict[str, list[tuple[str, str]]] = {}
        for entry in self._all:
            self._plain.setdefault(entry[1].removeprefix("./") if "/" in entry[1] else f"*/{entry[1]}", []).append(
                entry
            )
        self._order = {entry: i for i, entry in enumerate(self._all)}
        self._globs = [entry for entry in self._all if glob.has_magic(entry[1])]
        self._train_too = "train" in splits.files

    def set_of(self, paths: Sequence[str]) -> str | None:
        """Return the set of the files of a unit; None: train."""
        found = next((name for path in paths for name, _ in self._entries(path)), None)
        return None if found == "train" else found

    def check(self, units: Sequence[Unit], folder: Path, errors: Errors) -> None:
        """Report globs that match nothing, and files in no set or in several.

        Files that match no set are train, unless train has globs of its own.
        """
        met: set[tuple[str, str]] = set()
        for _, paths in units if self._all else ():
            entries = [entry for path in paths for entry in self._entries(path)]
            met.update(entries)
            names = list(dict.fromkeys(name for name, _ in entries))
            if len(names) > 1:
                both = " and ".join(f"splits.files.{name}" for name in names)
                errors.add(UserError(f"matches {both}; a file is in one split", folder / paths[0]))
            elif not names and self._train_too:
                message = "is in no split; name it in splits.files, or leave it out of the source"
                errors.add(UserError(message, folder / paths[0]))
        known = listed([path for _, paths in units for path in paths])
        for name, pattern in self._all:
            if (name, pattern) not in met:
                message = f"splits.files.{name}: no file matches {value_text(pattern)}; there are: {known}"
                errors.add(UserError(message, folder))

    def _entries(self, path: str) -> list[tuple[str, str]]:
        """Return (set, glob) for each glob that names the file, in their order."""
        wholes = dict.fromkeys((path, uncompressed(path)))
        keys = [key for whole in wholes for key in (whole, f"*/{PurePosixPath(whole).name}")]
        found = [entry for key in keys for entry in self._plain.get(key, ())]
        found += (entry for entry in self._globs if names_file(entry[1], path))
        return sorted(set(found), key=self._order.__getitem__)


def names_file(pattern: str, path: str) -> bool:
    """Return whether a glob of `splits.files` names a file; with "/" it is of the whole path: ./a is not b/a."""
    if "/" not in pattern:
        return matches(path, pattern)
    return any(fits(name, pattern.removeprefix("./")) for name in (path, uncompressed(path)))


def given_by_column(value: str) -> str | None:
    """Return the set that the value of `splits.column` names; None: train.

    Raises:
        ValueError: it names none; says what is allowed.
    """
    name = re.sub("[^a-z0-9]+", "_", value.strip().lower()).strip("_")
    name = _ALSO.get(name, name)
    if name in SPLITS or (name.startswith("test") and len(name) <= _LONGEST):
        return None if name == "train" else name
    known = "train, valid (or dev, val, validation), test, or a name that begins with test"
    raise ValueError(f"the split {value_text(value)} is none of: {known}")


def check_pinned(splits: Splits, known: set[str], some: Sequence[str], where: str) -> None:
    """Raise `UserErrors` for pinned groups that the corpus does not have.

    Args:
        splits, known: the pinned groups, and those found in the corpus.
        some, where: some of the corpus's groups, to suggest the nearest name, and the corpus, for the message.
    """
    absent = [group for group in splits.pinned if group not in known]
    if absent:
        raise UserErrors([f"{where}.splits.pinned: no group '{g}'{nearest(g, some)}" for g in absent])


def check_filled(splits: Splits, groups: dict[str, int], unit: str, where: str, given: Collection[str] = ()) -> None:
    """Raise `UserError` when a split with a share, or one with files of its own, is empty.

    Args:
        splits, groups: the shares, and the number of groups in each split.
        unit, where: the meaning of a group and the corpus, for the message.
        given: the sets that the data's owners made.
    """
    hollow = [name for name in splits.files if not groups.get(name)]
    if hollow:
        raise UserErrors([f"{where}.splits.files.{name}: its files hold no record" for name in hollow])
    shares = {"train": 1.0, "valid": splits.valid, "test": splits.test}
    empty = [split for split in SPLITS if shares[split] > 0 and split not in given and not groups[split]]
    if empty:
        counts = ", ".join(f"{split} {groups[split]:,}" for split in SPLITS)
        raise UserError(
            f"{where}.splits: nothing fell into {' and '.join(empty)}: the corpus has"
            f" {sum(groups.values()):,} groups (unit: {unit}; {counts}); enlarge the share, or name groups in"
            f" {where}.splits.pinned, or split the text into more groups (reader.document, reader.group)"
        )
