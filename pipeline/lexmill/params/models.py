"""An entry of `models`: its kind, family, data, training and evaluation.

The kind (`lexmill.kinds.<kind>`) declares the types of `data` and `evaluate`, the family (`lexmill.models.<family>`)
that of `shape`. Both are found by their names.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lexmill.base import plugins
from lexmill.base.shown import value_text
from lexmill.base.strict import build, nearest, spec
from lexmill.models.declaration import families, family, mismatch, unlike
from lexmill.params.corpora import HubSource, RegisteredSource, Source
from lexmill.params.recipe import Method, Steps


@dataclass(frozen=True)
class NoSettings:
    """The `evaluate` of a kind that has no settings for it."""


@dataclass(frozen=True)
class Model:
    """One entry of `models`. A kind's own entry is a subclass that types `data`, `evaluate` and, if need be, `recipe`.

    All keys but `evaluate` shape the weights.
    """

    kind: str = spec("what it is for: a folder of kinds/")
    family: str = spec("what it is made of: a folder of models/")
    shape: Any = spec("the network's sizes")
    data: Any = spec("what it learns from")
    start: str = spec("where its weights start: a file of conf/initialization/, or a model's folder in artifacts/")
    recipe: Method = spec("how it is trained")
    evaluate: Any = spec("how it is evaluated")

    @property
    def steps(self) -> Steps:
        """The recipe of a model that is trained by steps."""
        assert isinstance(self.recipe, Steps), f"the method {self.recipe.method} has no steps"
        return self.recipe

    @property
    def learns_from(self) -> str:
        """The corpus, mixture or translation whose train split it reads."""
        return getattr(self.data, "train", "") or str(self.data.corpus)

    @property
    def both_directions(self) -> bool:
        """Whether its network is causal and each token is to see those after it too."""
        return plugins.load("kinds", self.kind).KIND.both_directions and family(self.family).both_directions

    @property
    def task_tokens(self) -> bool:
        """Whether it adds start, delimiter and extract tokens to its tokenizer."""
        return False

    def start_error(self, name: str, family: str, shape: Mapping[str, Any]) -> str:
        """Say why this entry cannot start from a model of that family and shape; "" where it can."""
        differing = unlike(self.family, dataclasses.asdict(self.shape), family, shape)
        return f"models.{name}.start: {mismatch(self.start, differing)}" if differing else ""

    def reference_errors(self, tokenizer: str | None, languages: Mapping[str, Sequence[str]]) -> list[str]:
        """Return errors between the entry and those that it names; a subclass adds its own.

        Args:
            tokenizer: the kind of its tokenizer; None: a checkpoint's.
            languages: of each corpus that it learns from, and of its own.
        """
        return []

    def cross_errors(self) -> list[str]:
        """Return errors between the entry's parts; a subclass adds its own."""
        return []

    @classmethod
    def convert(cls, data: Any, path: str, errors: list[str]) -> Model | None:
        """Build the entry with the types of its kind and family; append what is wrong to `errors`."""
        if not isinstance(data, Mapping):
            errors.append(f"{path}: expected a mapping, got {value_text(data)}")
            return None
        kind_name, family_name = data.get("kind"), data.get("family")
        if not isinstance(kind_name, str) or kind_name not in plugins.names("kinds"):
            errors.append(f"{path}.kind: {_unknown(kind_name, plugins.names('kinds'))}")
            return None
        kind = plugins.load("kinds", kind_name).KIND
        fitting = tuple(families(*kind.roles))
        if kind.both_directions:
            fitting += tuple(name for name in families("causal") if family(name).both_directions)
        if not isinstance(family_name, str) or family_name not in fitting:
            errors.append(f"{path}.family: {_unknown(family_name, fitting)}")
            return None
        before = len(errors)
        entry: Model | None = build(kind.entry, data, errors, path)
        shape = build(family(family_name).shape, data.get("shape", {}), errors, f"{path}.shape")
        if entry is None or shape is None or len(errors) > before:
            return None
        entry = dataclasses.replace(entry, shape=shape)
        errors.extend(f"{path}.shape.{error}" for error in shape.entry_errors())
        errors.extend(f"{path}.{error}" for error in entry.cross_errors())
        return entry if len(errors) == before else None


def _unknown(name: Any, known: tuple[str, ...]) -> str:
    if name is None:
        return f"missing; one of: {', '.join(known)}"
    text = value_text(name)
    return f"{text} is unknown{nearest(name if isinstance(name, str) else text, known)}"


@dataclass(frozen=True)
class Checkpoint:
    """A pretrained model in Hugging Face format, fetched as it is."""

    source: Source | RegisteredSource = spec("where it comes from")
    licence: str = spec("the weights' licence, for the model card", "")
    note: str = spec("what to know of its training data", "")

    def errors(self) -> list[str]:
        if isinstance(self.source, HubSource):
            return ["source.kind: hub loads data sets, not models; name a model's files with url or file"]
        return []
