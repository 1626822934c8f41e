"""The sizes and declaration of a table of features of words."""

from __future__ import annotations

from dataclasses import dataclass

from lexmill.base.budgets import MAX_VOCABULARY
from lexmill.base.strict import spec
from lexmill.models.declaration import Family, Sizes


@dataclass(frozen=True)
class Shape(Sizes):
    """A row for each feature; in a trained model `n_feature` is how many there are."""

    n_feature: int = spec("most features kept, those whose scores say most", low=1, high=MAX_VOCABULARY)


FAMILY = Family(role="words", network="WordFeatures", shape=Shape, tiny={"n_feature": 7}, free=(), shrinking=())
