"""The sizes and declaration of a bag of n-grams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lexmill.base.budgets import MAX_WIDTH
from lexmill.base.strict import spec
from lexmill.models.declaration import Family, Sizes


@dataclass(frozen=True)
class Shape(Sizes):
    """A feature for each n-gram of tokens; in a trained model `n_feature` is how many there are."""

    n_feature: int = spec("most n-grams kept, those that are in most texts of train", low=1, high=MAX_WIDTH)
    longest: int = spec("longest n-gram", 1, unit="tokens", low=1, high=5)
    least_texts: int = spec("n-grams in fewer texts of train are left out", 1, unit="texts", low=1)
    weighting: Literal["count", "binary", "tfidf", "log_tfidf"] = spec(
        "how often an n-gram occurs; whether it does; how often, times its inverse document frequency, to length 1; the"
        " same of 1 + log(how often)",
        "count",
    )


TINY = {"n_feature": 7, "longest": 2}
FAMILY = Family(
    role="bag",
    network="Bag",
    shape=Shape,
    tiny=TINY,
    variants=({"weighting": "binary"}, {"weighting": "tfidf"}, {"weighting": "log_tfidf"}),
    free=(),
    shrinking=(),
)
