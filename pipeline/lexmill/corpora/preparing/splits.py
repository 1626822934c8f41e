"""The split of a record: given by the data's owners, or a function of its group and the salt alone.

A group's hash is a point in [0, 1): test takes the lowest points, valid the highest, train the middle. So a larger
corpus moves no group, and a larger share of valid or test takes groups from train only.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Sequence
from pathlib import Path

from lexmill.base.errors import UserError, UserErrors
from lexmill.base.shown import value_text
from lexmill.base.strict import nearest
from lexmill.corpora.fetching.globs import fits
from lexmill.corpora.preparing.errors import Errors
from lexmill.corpora.preparing.source_files import Unit, matches, uncompressed
from lexmill.params.corpora import Splits

SPLITS = ("train", "valid", "test")
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


def given_by_files(paths: Sequence[str], splits: Splits) -> str | None:
    """Return the set that `splits.files` puts the files of a unit in; None: train."""
    found = _sets_of(paths, splits)
    return found[0] if found and found[0] != "train" else None


def _sets_of(paths: Sequence[str], splits: Splits) -> list[str]:
    return [
        name
        for name, patterns in splits.files.items()
        if any(_fits(path, pattern) for path in paths for pattern in patterns)
    ]


def _fits(path: str, pattern: str) -> bool:
    """Return whether a file is named by a glob; one with "/" is of its whole path: ./a.txt is not b/a.txt."""
    if "/" not in pattern:
        return matches(path, pattern)
    return any(fits(name, pattern.removeprefix("./")) for name in (path, uncompressed(path)))


def check_files(units: Sequence[Unit], splits: Splits, folder: Path, errors: Errors) -> None:
    """Report globs of `splits.files` that match nothing, and files in no split or in several.

    Files that match no set are train, unless train has globs of its own.
    """
    paths = [path for _, of_unit in units for path in of_unit]
    some = ", ".join(paths[:10]) + (" ..." if len(paths) > 10 else "")
    for name, patterns in splits.files.items():
        for pattern in patterns:
            if not any(_fits(path, pattern) for path in paths):
                message = f"splits.files.{name}: no file matches {value_text(pattern)}; there are: {some}"
                errors.add(UserError(message, folder))
    for _, of_unit in units:
        found = _sets_of(of_unit, splits)
        if len(found) > 1:
            both = " and ".join(f"splits.files.{name}" for name in found)
            errors.add(UserError(f"matches {both}; a file is in one split", folder / of_unit[0]))
        elif not found and "train" in splits.files:
            message = "is in no split; name it in splits.files, or leave it out of the source"
            errors.add(UserError(message, folder / of_unit[0]))


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
