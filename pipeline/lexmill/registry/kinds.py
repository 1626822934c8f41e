"""The three kinds of models, and where the stages that make them leave their results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from lexmill.params import Params

Kind = Literal["language_model", "classifier", "translator"]


@dataclass(frozen=True)
class KindOf:
    """One kind: its mapping in params.yaml, its stages, and how people say it."""

    kind: Kind
    group: str
    trained_by: str
    words: str
    verb: str  # the command that uses it

    @property
    def evaluated_by(self) -> str:
        return f"evaluate_{self.kind}"

    @property
    def floored_by(self) -> str:
        return f"floor_{self.kind}"

    def models(self, params: Params) -> Mapping[str, Any]:
        """The entries of this kind in params.yaml."""
        return cast(Mapping[str, Any], getattr(params, self.group))

    def floors(self, params: Params) -> Mapping[str, Any]:
        """The floors of this kind in params.yaml."""
        return cast(Mapping[str, Any], getattr(params.floors, self.kind))


KINDS: dict[str, KindOf] = {
    "language_model": KindOf("language_model", "language_models", "pretrain", "language model", "generate"),
    "classifier": KindOf("classifier", "classifiers", "finetune", "classifier", "classify"),
    "translator": KindOf("translator", "translators", "train_translator", "translator", "translate"),
}
