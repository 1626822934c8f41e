"""Predictions of a packaged language model: the continuation; its params are those of `Sampling`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from lexmill.decoding import predictor, settings
from lexmill.decoding.predictor import check_texts
from lexmill.decoding.settings import Sampling, built


class Predictor(predictor.Predictor):
    """Continues texts."""

    most: ClassVar[Mapping[str, int]] = {"max_tokens": 10_000}
    timed: ClassVar[Mapping[str, Any]] = {"max_tokens": 24, "temperature": 0.0}

    @classmethod
    def params(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        return settings.names()

    def answer(self, texts: Sequence[str], chosen: Mapping[str, Any]) -> list[str]:
        from lexmill.decoding.sampling import generate

        return generate(self.module, self.tokenizer, texts, built(Sampling, chosen))

    def stream(self, prompt: str, params: Mapping[str, Any] | None = None) -> Iterator[str]:
        from lexmill.decoding.sampling import stream

        check_texts([prompt])
        return stream(self.module, self.tokenizer, prompt, built(Sampling, self.chosen(params or {})))
