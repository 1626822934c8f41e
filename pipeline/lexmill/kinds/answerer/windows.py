"""Questions and contexts as windows of tokens: `<begin> question <end> part of the context <end>`.

A context that is longer than the room beside its question is read in overlapping windows (Devlin et al. 2019). Each
begins `stride` tokens after the one before, or less where `stride` is larger than the room, so that no token is
skipped; the last reaches the context's end.

Letters: B windows, T tokens, N tokens of a context.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lexmill.base.errors import UserError
from lexmill.data.texts import Array, Batch, Ids, TextBatches
from lexmill.tokenizers import Tokenizer

NOWHERE = 0  # the place of the begin token, where a window without the answer points


@dataclass(frozen=True)
class Sizes:
    """The sizes of windows and answers, in tokens, as `kinds.answerer.Data` has them."""

    max_tokens: int
    stride: int
    max_question: int
    max_answer: int

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Sizes:
        """Take them from a model folder's config.json."""
        return cls(*(int(config[name]) for name in ("max_tokens", "stride", "max_question", "max_answer")))


@dataclass(frozen=True)
class Encoded:
    """A question, cut to `max_question`, and its context.

    Attributes:
        question, context: token ids.
        spans: (N, 2), of each token of the context its characters, from and up to.
        cut: whether the question was longer.
    """

    question: list[int]
    context: list[int]
    spans: Ids
    cut: bool


@dataclass(frozen=True)
class Window:
    """A window.

    Attributes:
        item: the number of its question.
        ids: its tokens.
        begin: the place of its first token of the context.
        first, count: that token's number in the context, and how many of them are here.
    """

    item: int
    ids: list[int]
    begin: int
    first: int
    count: int


def encode(tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]], max_question: int) -> list[Encoded]:
    """Return questions with their contexts as tokens; equal contexts are encoded once."""
    different = list(dict.fromkeys(context for _, context in pairs))
    made = {
        context: (ids, np.array(spans, dtype=np.int64).reshape(-1, 2))
        for context, (ids, spans) in zip(different, tokenizer.encode_offsets(different), strict=True)
    }
    return [
        Encoded(question[:max_question], *made[context], len(question) > max_question)
        for question, (_, context) in zip(tokenizer.encode_batch([one for one, _ in pairs]), pairs, strict=True)
    ]


def windows(tokenizer: Tokenizer, encoded: Sequence[Encoded], sizes: Sizes) -> Iterator[Window]:
    """Yield the windows of each question in order; a context without tokens has one.

    Raises:
        UserError: a question leaves no room for its context.
    """
    for item, one in enumerate(encoded):
        head = [tokenizer.bos_id, *one.question, *tokenizer.between]
        room = sizes.max_tokens - len(head) - 1
        if room < 1:
            raise UserError(f"max_question leaves no room for the context in {sizes.max_tokens} tokens; lower it")
        first, length = 0, len(one.context)
        while True:
            part = one.context[first : first + room]
            yield Window(item, [*head, *part, tokenizer.eos_id], len(head), first, len(part))
            if first + room >= length:
                break
            first += min(sizes.stride, room)


def target(window: Window, spans: Ids, answers: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    """Return the places of the first and last token of an answer in a window: the first answer that is all in it.

    `NOWHERE` for both if none is.

    Args:
        window: of the question.
        spans: of its context, (N, 2).
        answers: [{"text", "start"}], spans of characters of the context.
    """
    for answer in answers:
        start, end = answer["start"], answer["start"] + len(answer["text"])
        inside = np.flatnonzero((spans[:, 1] > start) & (spans[:, 0] < end) & (spans[:, 1] > spans[:, 0]))
        if not len(inside):
            continue
        first, last = int(inside[0]) - window.first, int(inside[-1]) - window.first
        if first >= 0 and last < window.count:
            return window.begin + first, window.begin + last
    return NOWHERE, NOWHERE


def segments(begins: Ids, mask: Array) -> Ids:
    """Return the segments (B, T) of padded windows: 0 up to where the context begins (B,), then 1, at padding 0."""
    found: Ids = ((np.arange(mask.shape[1]) >= begins[:, None]) & mask).astype(np.int64)
    return found


class WindowBatches(TextBatches):
    """Batches of windows.

    Args:
        all_windows: of every question.
        targets: of each window, the places of the answer's first and last token.
        batch_size, seed: as of `TextBatches`.

    Raises:
        UserError: there are none.
    """

    def __init__(
        self, all_windows: Sequence[Window], targets: Sequence[tuple[int, int]], batch_size: int, seed: int
    ) -> None:
        super().__init__([window.ids for window in all_windows], batch_size, seed, pad_id=0)  # padding is masked
        self.begins: Ids = np.array([window.begin for window in all_windows], dtype=np.int64)
        self.targets: Ids = np.array(targets, dtype=np.int64).reshape(-1, 2)

    def arrays(self, batch: Batch) -> dict[str, Array]:
        """Return tokens, mask and segments (B, T), starts and ends (B,)."""
        starts, ends = self.targets[batch.index].T
        placed = segments(self.begins[batch.index], batch.mask)
        return {"tokens": batch.tokens, "mask": batch.mask, "segments": placed, "starts": starts, "ends": ends}
