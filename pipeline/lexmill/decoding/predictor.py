"""Texts in, one answer a text out: what a packaged model does for its user.

The same class serves the command line, `mlflow.pyfunc` and `mlflow models serve`. One answer for each text, in order;
no answer depends on the other texts. Each kind has a subclass that answers (`lexmill.kinds.<kind>.predict`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from lexmill.base.errors import UserError, UserErrors
from lexmill.base.strict import build, nearest

if TYPE_CHECKING:
    from torch import nn

    from lexmill.tokenizers import Tokenizer

BATCH_TOKENS = 8192
_Settings = TypeVar("_Settings")


class Predictor(ABC):
    """A packaged model, ready to answer.

    Args:
        name: the model's.
        config: its model folder's config.json, with the `evaluate` part of its entry.
        module: the network, in eval mode.

    Attributes:
        defaults: the params that it takes, with their defaults.
        most: of params by which one request could hold a server for hours: their largest values there.
        timed: params with which two models are timed beside each other.
    """

    most: ClassVar[Mapping[str, int]] = {}
    timed: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, name: str, config: Mapping[str, Any], module: nn.Module, tokenizer: Tokenizer) -> None:
        self.name, self.config, self.module, self.tokenizer = name, config, module, tokenizer
        self.defaults = self.params(config)

    @classmethod
    def params(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        """The params that such a model takes, with their defaults, from its config."""
        return {}

    @classmethod
    def example(cls, config: Mapping[str, Any]) -> Any:
        """An answer of the form that such a model gives, for MLflow's signature."""
        return ""

    @abstractmethod
    def answer(self, texts: Sequence[str], chosen: Mapping[str, Any]) -> list[Any]:
        """One answer a text, with all params chosen; there is at least one text."""

    def predict(self, texts: Sequence[str], params: Mapping[str, Any] | None = None) -> list[Any]:
        """One answer a text.

        Raises:
            UserErrors: a param that this model does not take, or out of bounds.
            UserError: something that is no text.
        """
        check_texts(texts)
        chosen = self.chosen(params or {})
        return self.answer(texts, chosen) if texts else []

    def stream(self, prompt: str, params: Mapping[str, Any] | None = None) -> Iterator[str]:
        """The answer to one text in pieces, as they are made; joined they are what `predict` gives.

        Raises:
            UserErrors, UserError: as `predict`; at once, not with the first piece.
        """
        return iter([str(self.predict([prompt], params)[0])])

    def chosen(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The defaults with `params` over them, each of the default's type (MLflow gives numpy numbers)."""
        faults = []
        chosen = dict(self.defaults)
        for key, value in params.items():
            if key not in chosen:
                words = str(self.config["kind"]).replace("_", " ")
                faults.append(f"{key}: a {words} takes no such param{nearest(key, chosen)}")
                continue
            wanted = type(chosen[key])
            if wanted is list:
                chosen[key] = value.tolist() if hasattr(value, "tolist") else value  # whoever uses it checks it
                continue
            try:
                chosen[key] = wanted(value)
            except (TypeError, ValueError):
                faults.append(f"{key}: {value!r} is not a number")
                continue
            if chosen[key] != value:
                faults.append(f"{key}: {value!r} is not a whole number")
        if faults:
            raise UserErrors(faults)
        return chosen


def built(of: type[_Settings], values: Mapping[str, Any]) -> _Settings:
    """Settings from plain values; raises `UserErrors` with all that are out of bounds."""
    faults: list[str] = []
    found = build(of, values, faults)
    if found is None:
        raise UserErrors(faults)
    return found


def check_texts(texts: Sequence[str]) -> None:
    """Raise `UserError` where something is no text."""
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise UserError(f"input {i} is no text but {type(text).__name__}: {text!r:.80}")
