"""Answers to conversations, whole or as a stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

from lexmill.data.conversations import Messages, answer_prompt
from lexmill.decoding.settings import Sampling
from lexmill.decoding.text import GrowingText

if TYPE_CHECKING:
    from torch import nn

    from lexmill.tokenizers import Tokenizer


def replies(
    module: nn.Module, tokenizer: Tokenizer, conversations: Sequence[Messages], sampling: Sampling
) -> list[str]:
    """Return the assistant's next answer to each conversation; it ends with its end token."""
    return ["".join(stream(module, tokenizer, messages, sampling)) for messages in conversations]


def stream(module: nn.Module, tokenizer: Tokenizer, messages: Messages, sampling: Sampling) -> Iterator[str]:
    """Yield the answer to a conversation in pieces as it is written; raise `UserErrors` at once for wrong settings.

    Of a conversation that fills the network's context, less the answer's most tokens but at least a half, the end is
    read.
    """
    sampling.check()
    from lexmill.decoding.sampling import LanguageModel, draw

    model = cast(LanguageModel, module)
    room = max(model.context // 2, model.context - sampling.max_tokens)
    start = answer_prompt(tokenizer, messages)[-room:]

    def pieces() -> Iterator[str]:
        text, ended = GrowingText(tokenizer, start, sampling.stop), set[int]()
        never = tokenizer.never_written
        for step in draw(model, [start], sampling, eos=tokenizer.eos_id, never_written=never, ended=ended):
            for place, token in step:
                if piece := text.add(token):
                    yield piece
                if text.stopped:
                    ended.add(place)
        if piece := text.finish():
            yield piece

    return pieces()
