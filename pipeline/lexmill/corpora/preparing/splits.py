"""The split of a group, a function of the group and the salt alone.

A group's hash is a point in [0, 1): test takes the lowest points, valid the highest, train the middle. So a larger
corpus moves no group, and a larger share of valid or test takes groups from train only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from lexmill.base.errors import UserError, UserErrors
from lexmill.base.strict import nearest
from lexmill.params import Splits

SPLITS = ("train", "valid", "test")


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


def check_pinned(splits: Splits, known: set[str], some: Sequence[str], where: str) -> None:
    """Raise `UserErrors` for pinned groups that the corpus does not have.

    Args:
        splits, known: the pinned groups, and those found in the corpus.
        some, where: some of the corpus's groups, to suggest the nearest name, and the corpus, for the message.
    """
    absent = [group for group in splits.pinned if group not in known]
    if absent:
        raise UserErrors([f"{where}.splits.pinned: no group '{g}'{nearest(g, some)}" for g in absent])


def check_filled(splits: Splits, groups: dict[str, int], unit: str, where: str) -> None:
    """Raise `UserError` when a split with a share is empty.

    Args:
        splits, groups: the shares, and the number of groups in each split.
        unit, where: the meaning of a group and the corpus, for the message.
    """
    shares = {"train": 1.0, "valid": splits.valid, "test": splits.test}
    empty = [split for split in SPLITS if shares[split] > 0 and not groups[split]]
    if empty:
        counts = ", ".join(f"{split} {groups[split]:,}" for split in SPLITS)
        raise UserError(
            f"{where}.splits: nothing fell into {' and '.join(empty)}: the corpus has"
            f" {sum(groups.values()):,} groups (unit: {unit}; {counts}); enlarge the share, or name groups in"
            f" {where}.splits.pinned, or split the text into more groups (reader.document, reader.group)"
        )
