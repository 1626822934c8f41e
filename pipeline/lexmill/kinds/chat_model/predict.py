"""Predictions of a packaged chat model: the answer to one message of a user; its params are those of `Sampling`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from lexmill.data.conversations import Messages
from lexmill.decoding import predictor, settings
from lexmill.decoding.predictor import check_texts
from lexmill.decoding.settings import Sampling, built
from lexmill.kinds.chat_model.replies import replies, stream


class Predictor(predictor.Predictor):
    """Answers messages."""

    most: ClassVar[Mapping[str, int]] = {"max_tokens": 10_000}
    timed: ClassVar[Mapping[str, Any]] = {"max_tokens": 24, "temperature": 0.0}

    @classmethod
    def params(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        return settings.names()

    def answer(self, texts: Sequence[str], chosen: Mapping[str, Any]) -> list[str]:
        asked = [[{"role": "user", "content": text}] for text in texts]
        return replies(self.module, self.tokenizer, asked, built(Sampling, chosen))

    def stream(self, prompt: str, params: Mapping[str, Any] | None = None) -> Iterator[str]:
        check_texts([prompt])
        return self.reply([{"role": "user", "content": prompt}], params)

    def reply(self, messages: Messages, params: Mapping[str, Any] | None = None) -> Iterator[str]:
        """Yield the next answer of a conversation in pieces."""
        return stream(self.module, self.tokenizer, messages, built(Sampling, self.chosen(params or {})))
