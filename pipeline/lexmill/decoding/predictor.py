"""The predictions of a packaged model: one answer for each text, in order and independent of the other texts.

The same class serves the command line, `mlflow.pyfunc` and `mlflow models serve`; each kind has a subclass
(`lexmill.kinds.<kind>.predict`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from lexmill.base.errors import UserError, UserErrors
from lexmill.base.shown import value_text
from lexmill.base.strict import nearest

if TYPE_CHECKING:
    from torch import nn

    from lexmill.tokenizers import Tokenizer

BATCH_TOKENS = 8192
TEXT_TOKENS = (
    512  # of texts that a head reads whole: a processor gains nothing from more, and short ones would be padded
)


class Predictor(ABC):
    """A packaged model, ready to answer.

    Args:
        name: the model's.
        config: its model folder's config.json, with the `evaluate` part of its entry.
        module: the network, in eval mode.

    Attributes:
        defaults: its params with their defaults.
        most: the largest values on a server of params by which one request could block it for hours.
        timed: the params with which two models are timed.
    """

    most: ClassVar[Mapping[str, int]] = {}
    timed: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, name: str, config: Mapping[str, Any], module: nn.Module, tokenizer: Tokenizer) -> None:
        self.name, self.config, self.module, self.tokenizer = name, config, module, tokenizer
        self.defaults = self.params(config)

    @classmethod
    def params(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        """The params of such a model with their defaults, from its config."""
        return {}

    @classmethod
    def example(cls, config: Mapping[str, Any]) -> Any:
        """An example of an answer, for MLflow's signature."""
        return ""

    @abstractmethod
    def answer(self, texts: Sequence[str], chosen: Mapping[str, Any]) -> list[Any]:
        """Answer each text, at least one, with a value for every param."""

    def predict(self, texts: Sequence[str], params: Mapping[str, Any] | None = None) -> list[Any]:
        """Answer each text.

        Raises:
            UserErrors: an unknown param, or one out of bounds.
            UserError: an input that is not a string.
        """
        check_texts(texts)
        chosen = self.chosen(params or {})
        return self.answer(texts, chosen) if texts else []

    def stream(self, prompt: str, params: Mapping[str, Any] | None = None) -> Iterator[str]:
        """Yield the answer of `predict` to one text in pieces; raise its errors at once, not with the first piece."""
        return iter([str(self.predict([prompt], params)[0])])

    def chosen(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The defaults overridden by `params`, each converted to the default's type (MLflow passes numpy numbers)."""
        errors = []
        chosen = dict(self.defaults)
        for key, value in params.items():
            if key not in chosen:
                words = str(self.config["kind"]).replace("_", " ")
                errors.append(f"{key}: a {words} takes no such param{nearest(key, chosen)}")
                continue
            wanted = type(chosen[key])
            if wanted in (list, str):
                chosen[key] = value.tolist() if hasattr(value, "tolist") else value  # checked where it is used
                continue
            try:
                chosen[key] = wanted(value)
            except (TypeError, ValueError, OverflowError):
                errors.append(f"{key}: {value_text(value)} is not a number")
                continue
            if chosen[key] != value:
                errors.append(f"{key}: {value_text(value)} is not a whole number")
        if errors:
            raise UserErrors(errors)
        return chosen


def check_texts(texts: Sequence[str]) -> None:
    """Raise `UserError` for an input that is not a string."""
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise UserError(f"input {i} is no text but {type(text).__name__}: {value_text(text, 80)}")
