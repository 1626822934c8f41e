"""Answers to conversations, whole or as a stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

from lexmill.data.conversations import Messages, answer_prompt
from lexmill.decoding.settings import Sampling
from lexmill.decoding.text import text_behind

if TYPE_CHECKING:
    from torch import nn

    from lexmill.decoding.sampling import LanguageModel
    from lexmill.tokenizers import Tokenizer

_BATCH = 16  # conversations answered at once


def replies(
    module: nn.Module, tokenizer: Tokenizer, conversations: Sequence[Messages], sampling: Sampling
) -> list[str]:
    """Return the assistant's next answer to each conversation, up to its end token or the first of `sampling.stop`."""
    if sampling.stop:
        return ["".join(stream(module, tokenizer, messages, sampling)) for messages in conversations]
    sampling.check()
    from lexmill.decoding.sampling import continue_tokens

    model, found = cast("LanguageModel", module), list[str]()
    for at in range(0, len(conversations), _BATCH):
        starts = [_start(model, tokenizer, messages, sampling) for messages in conversations[at : at + _BATCH]]
        made = continue_tokens(model, starts, sampling, eos=tokenizer.eos_id, never_written=tokenizer.never_written)
        found += [text_behind(tokenizer, start, new) for start, new in zip(starts, made, strict=True)]
    return found


def _start(model: LanguageModel, tokenizer: Tokenizer, messages: Messages, sampling: Sampling) -> list[int]:
    """Return the tokens that an answer continues: the end of a conversation that leaves no room for one."""
    room = max(model.context // 2, model.context - sampling.max_tokens)
    return answer_prompt(tokenizer, messages)[-room:]


def stream(module: nn.Module, tokenizer: Tokenizer, messages: Messages, sampling: Sampling) -> Iterator[str]:
    """Yield the answer to a conversation in pieces as it is written; raise `UserErrors` at once for wrong settings.

    Of a conversation that fills the network's context, less the answer's most tokens but at least a half, the end is
    read.
    """
    sampling.check()
    from lexmill.decoding.sampling import streamed

    return streamed(module, tokenizer, _start(cast("LanguageModel", module), tokenizer, messages, sampling), sampling)
