"""params.yaml of a classifier `sentiment` on `reviews`: a tiny BERT, a bag of words, or a tiny network of a family."""

from __future__ import annotations

import dataclasses
from typing import Any

from lexmill import models
from tests.support.labelled_model import FINE_TUNING, entry, params_of, write
from tests.support.small_project import whole

RECIPES: dict[str, dict[str, Any]] = {
    "multinomial": {"method": "naive_bayes", "event": "multinomial", "alpha": 0.5},
    "bernoulli": {"method": "naive_bayes", "event": "bernoulli", "alpha": 2.0},
    "softmax": {"method": "linear_probe", "l2": 0.5, "tolerance": 1e-9, "pooling": "none"},
    "sigmoid": {"method": "linear_probe", "loss": "sigmoid", "l2": 0.5, "tolerance": 1e-9, "pooling": "none"},
    "svm": {"method": "linear_svm", "l2": 0.5, "tolerance": 1e-8, "max_iterations": 100_000, "pooling": "none"},
    "perceptron": {"method": "perceptron", "epochs": 3, "average": False, "pooling": "none"},
    "averaged": {"method": "perceptron", "epochs": 3, "average": True, "pooling": "none"},
}
RECIPE = FINE_TUNING | {"length": "6 epochs", "optimizer": {"name": "adam", "lr": 0.05}}


def write_params(recipe: dict[str, Any] | None = None, **data: Any) -> None:
    """The fine-tuning of a tiny BERT, or another recipe; what is named in both is that of `recipe`."""
    write(params_of({"sentiment": entry("classifier", "reviews", recipe or FINE_TUNING, **data)}))


def write_bag(recipe: dict[str, Any], family: str = "bag", **shape: Any) -> None:
    """A bag of n-grams of words."""
    write_network(family, recipe, shape={"n_feature": 1000, "longest": 2} | shape, vocab_size=100)


def write_network(
    family: str,
    recipe: dict[str, Any],
    kind: str = "word",
    *,
    shape: dict[str, Any] | None = None,
    vocab_size: int = 300,
    **more: Any,
) -> None:
    """A network of a family with a tokenizer trained here; by default its tiny one, for texts of 40 tokens."""
    if shape is None:
        sizes = {field.name for field in dataclasses.fields(models.family(family).shape)}
        shape = {**models.family(family).tiny} | dict.fromkeys({"context", "max_positions"} & sizes, 40)
    model = entry("classifier", "reviews", recipe, "words")
    made = params_of({"sentiment": model | {"family": family, "shape": shape, "start": "start.yaml"} | more})
    words = {"corpus": "reviews", "kind": kind, "vocab_size": vocab_size, "min_frequency": 1}
    write(whole(made | {"tokenizers": {"words": words}, "checkpoints": {}}))
