"""Texts in, one answer a text out: what a packaged model does for its user.

The same class serves the command line, `mlflow.pyfunc` and `mlflow models serve`. One answer for each text, in order;
no answer depends on the other texts. torch is imported when a model is loaded, not before.

| kind | answer | params |
|---|---|---|
| language_model | the text that follows | those of `Sampling` |
| classifier | {"label", "score", "scores": {label: probability}} | none |
| translator | the translation; "" for an empty line | beam_size |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from lexmill.base.errors import UserError, UserErrors
from lexmill.base.strict import build, nearest
from lexmill.decoding import settings
from lexmill.decoding.settings import Sampling
from lexmill.params import BeamSearch

if TYPE_CHECKING:
    from torch import nn

_BATCH_TOKENS = 8192
_Settings = TypeVar("_Settings")


def defaults(description: Mapping[str, Any]) -> dict[str, Any]:
    """The params that the model of a package takes, with their defaults.

    Args:
        description: package.json.
    """
    if description["kind"] == "language_model":
        return settings.names()
    if description["kind"] == "translator":
        return {"beam_size": description["config"]["beam"]["beam_size"]}
    return {}


class Predictor:
    """A packaged model, ready to answer.

    Args:
        description: its package.json.
        module: the network, in eval mode.
        tokenizer: as the kind needs it.
    """

    def __init__(self, description: Mapping[str, Any], module: nn.Module, tokenizer: Any) -> None:
        self.name: str = description["name"]
        self.kind: str = description["kind"]
        self.config: Mapping[str, Any] = description["config"]
        self.defaults = defaults(description)
        self.module, self.tokenizer = module, tokenizer

    def predict(self, texts: Sequence[str], params: Mapping[str, Any] | None = None) -> list[Any]:
        """One answer a text.

        Raises:
            UserErrors: a param that this kind does not take, or out of bounds.
            UserError: something that is no text.
        """
        _check_texts(texts)
        chosen = self._chosen(params or {})
        if not texts:
            return []
        if self.kind == "language_model":
            return self._generate(texts, chosen)
        if self.kind == "classifier":
            return self._classify(texts)
        return self._translate(texts, chosen)

    def stream(self, prompt: str, params: Mapping[str, Any] | None = None) -> Iterator[str]:
        """A language model's answer to one prompt, in pieces as it is written; joined they are what `predict` gives.

        Raises:
            UserErrors, UserError: as `predict`; at once, not with the first piece.
        """
        from lexmill.decoding.sampling import stream

        _check_texts([prompt])
        return stream(self.module, self.tokenizer, prompt, self._sampling(self._chosen(params or {})))

    def _chosen(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The defaults with `params` over them, each of the default's type (MLflow gives numpy numbers)."""
        faults = []
        chosen = dict(self.defaults)
        for key, value in params.items():
            if key not in chosen:
                faults.append(f"{key}: a {self.kind.replace('_', ' ')} takes no such param{nearest(key, chosen)}")
                continue
            wanted = type(chosen[key])
            if wanted is list:
                chosen[key] = value.tolist() if hasattr(value, "tolist") else value  # `Sampling` checks it
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

    def _generate(self, prompts: Sequence[str], chosen: dict[str, Any]) -> list[str]:
        from lexmill.decoding.sampling import generate

        return generate(self.module, self.tokenizer, prompts, self._sampling(chosen))

    @staticmethod
    def _sampling(chosen: Mapping[str, Any]) -> Sampling:
        return _built(Sampling, chosen)

    @property
    def beam(self) -> BeamSearch:
        """How a translator searches where nothing else is asked for."""
        return _built(BeamSearch, self.config["beam"])

    def _translate(self, lines: Sequence[str], chosen: dict[str, Any]) -> list[str]:
        from lexmill.decoding.translate import translate_lines

        beam = replace(self.beam, beam_size=_built(BeamSearch, chosen).beam_size)
        return [found.text for found in translate_lines(self.module, self.tokenizer, lines, beam, _BATCH_TOKENS)]

    def _classify(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        from lexmill.decoding.classify import classify_texts

        labels = self.config["labels"]
        chances = classify_texts(self.module, self.tokenizer, texts, self.config["max_tokens"], _BATCH_TOKENS)  # (N, L)
        found = []
        for row in chances:
            best = int(row.argmax())
            scores = {label: float(chance) for label, chance in zip(labels, row, strict=True)}
            found.append({"label": labels[best], "score": float(row[best]), "scores": scores})
        return found


def _built(of: type[_Settings], values: Mapping[str, Any]) -> _Settings:
    faults: list[str] = []
    found = build(of, values, faults)
    if found is None:
        raise UserErrors(faults)
    return found


def _check_texts(texts: Sequence[str]) -> None:
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise UserError(f"input {i} is no text but {type(text).__name__}: {text!r:.80}")
