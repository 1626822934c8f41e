"""Shares of valid and test that leave no split empty: a hash may put none of twenty groups into 5 % of them.

The groups are those of the prepare stage. The usual shares are kept where they work, else larger ones are tried, and at
last other salts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence, Set

from lexmill.base.errors import UserError
from lexmill.corpora.prepared import SPLITS
from lexmill.corpora.preparing.splits import split_of
from lexmill.params.corpora import Splits

MOST_GROUPS = 2000  # more fill any share: 5 % of them are empty with a chance of 10^-45
_SHARES = (0.1, 0.15, 0.2, 0.25, 0.3)
_SALTS = 200
_MANY = 10  # groups; so many are enough for two in each split


def working(usual: Splits, groups: Mapping[str, Set[str]], unit: str, given: Collection[str] = ()) -> Splits:
    """Return splits of which each has groups, and train two labels.

    Args:
        usual: the shares to keep where they work.
        groups: the corpus's groups, at most `MOST_GROUPS`, each with its labels (none: they have none).
        unit: what a group is, for the message.
        given: the sets that the data's owners made, which are not cut from these groups.

    Raises:
        UserError: there are fewer groups than splits, or no split leaves two labels to train on.
    """
    wanted = [split for split in SPLITS if split not in given]
    if len(groups) < len(wanted):
        raise UserError(
            f"only {len(groups)} different groups (unit: {unit}) are left to split into {', '.join(wanted)}; at least"
            f" {len(wanted)} are needed"
        )
    for splits in _candidates(usual):
        valid, test = (0.0 if split in given else getattr(splits, split) for split in ("valid", "test"))
        cut = dataclasses.replace(splits, valid=valid, test=test)
        if len(groups) >= MOST_GROUPS or _works(cut, groups, wanted):
            return splits
    raise UserError(
        f"no split of the {len(groups)} groups (unit: {unit}) leaves two labels to train on and something to test;"
        " more texts of each label are needed"
    )


def _candidates(usual: Splits) -> Iterator[Splits]:
    yield usual
    for share in _SHARES:
        yield dataclasses.replace(usual, valid=max(share, usual.valid), test=max(share, usual.test))
    for number in range(2, _SALTS):
        yield dataclasses.replace(usual, valid=_SHARES[-1], test=_SHARES[-1], salt=f"{usual.salt}-{number}")


def _works(splits: Splits, groups: Mapping[str, Set[str]], wanted: Sequence[str]) -> bool:
    counts = dict.fromkeys(wanted, 0)
    learned: set[str] = set()
    labelled = any(groups.values())
    for group, labels in groups.items():
        split = split_of(group, splits)
        counts[split] += 1
        if split == "train":
            learned |= labels
    least = 2 if len(groups) >= _MANY else 1
    return min(counts.values()) >= least and (not labelled or len(learned) > 1)
