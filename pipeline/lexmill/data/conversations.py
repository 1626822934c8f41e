"""Conversations as tokens, and packed into windows.

Each message is its role, the begin token, its text and the end token; an end token precedes all:

    </s> user <s> How are you? </s> assistant <s> Fine. </s>

A text never encodes to these tokens, so none can imitate the end of its message. Only the texts of the assistant and
their end tokens are learned.

A window holds whole conversations, as many as fit. Each has a document number of its own, so that none sees another.
Of a conversation that is longer than a window only the end is used, as when a long one is continued.

Letters: N windows, T context.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from lexmill.base.errors import UserError
from lexmill.data.permutation import fold, permute
from lexmill.data.windows import Ids, positions

if TYPE_CHECKING:
    from lexmill.tokenizers import Tokenizer

IGNORED = -100  # the target of a position that is not learned
ASSISTANT = "assistant"
CHAT_TEMPLATE = (
    "{{ eos_token }}{% for message in messages %}"
    "{{ message['role'] + bos_token + message['content'] | trim + eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant' + bos_token }}{% endif %}"
)
"""The same for `apply_chat_template` of transformers (Jinja)."""

Messages = Sequence[Mapping[str, str]]


@dataclass(frozen=True)
class Encoded:
    """A conversation.

    Attributes:
        ids: its tokens, the end token first.
        learned: whether each is of an answer.
    """

    ids: npt.NDArray[np.int64]
    learned: npt.NDArray[np.bool_]

    def last(self, count: int) -> Encoded:
        """Return its last tokens."""
        return Encoded(self.ids[-count:], self.learned[-count:])


def encode(tokenizer: Tokenizer, conversations: Sequence[Messages]) -> list[Encoded]:
    """Return the tokens of conversations; a text loses white space at its ends."""
    texts = [
        text
        for messages in conversations
        for message in messages
        for text in (message["role"], message["content"].strip())
    ]
    encoded = iter(tokenizer.encode_batch(texts) if texts else [])
    found = []
    for messages in conversations:
        ids, learned = [tokenizer.eos_id], [False]
        for message in messages:
            role, content = next(encoded), next(encoded)
            ids += [*role, tokenizer.bos_id, *content, tokenizer.eos_id]
            learned += [False] * (len(role) + 1) + [message["role"] == ASSISTANT] * (len(content) + 1)
        found.append(Encoded(np.array(ids, dtype=np.int64), np.array(learned, dtype=np.bool_)))
    return found


def answer_prompt(tokenizer: Tokenizer, messages: Messages) -> list[int]:
    """Return the tokens after which the assistant's next answer begins."""
    (found,) = encode(tokenizer, [messages])
    return [*found.ids.tolist(), *tokenizer.encode(ASSISTANT), tokenizer.bos_id]


def pack(lengths: Sequence[int], size: int) -> list[list[int]]:
    """Put items into bins of a size, each whole: best fit, in their order; return the items of each bin.

    Raises:
        ValueError: an item is larger than a bin.
    """
    bins: list[list[int]] = []
    room: list[tuple[int, int]] = []  # (room left, bin), sorted
    for item, length in enumerate(lengths):
        if length > size:
            raise ValueError(f"item {item} has size {length}, a bin {size}")
        at = bisect_left(room, (length, 0))
        if at < len(room):
            left, found = room.pop(at)
        else:
            left, found = size, len(bins)
            bins.append([])
        bins[found].append(item)
        insort(room, (left - length, found))
    return bins


@dataclass(frozen=True)
class Windows:
    """Packed conversations, each array (N, T): inputs, targets (`IGNORED` where nothing is learned), documents.

    Attributes:
        cut: the number of conversations too long for a window, whose end alone is used.
        unlearned: the number left out, as nothing of them is learned.
    """

    inputs: npt.NDArray[np.int32]
    targets: npt.NDArray[np.int32]
    documents: npt.NDArray[np.int32]
    cut: int
    unlearned: int

    def rows(self, places: Ids) -> dict[str, Ids]:
        """Return some windows as a batch."""
        arrays = {"inputs": self.inputs, "targets": self.targets, "documents": self.documents}
        return {name: array[places].astype(np.int64) for name, array in arrays.items()}


def windows(encoded: Iterable[Encoded], context: int, pad_id: int) -> Windows:
    """Pack conversations into windows of `context` targets."""
    all_of_them = list(encoded)
    some = [one.last(context + 1) for one in all_of_them]
    kept = [one for one in some if one.learned[1:].any()]
    bins = pack([len(one.ids) - 1 for one in kept], context)
    shape = (len(bins), context)
    inputs, targets = np.full(shape, pad_id, dtype=np.int32), np.full(shape, IGNORED, dtype=np.int32)
    documents = np.zeros(shape, dtype=np.int32)
    for row, members in enumerate(bins):
        at = 0
        for number, member in enumerate(members):
            one = kept[member]
            here = slice(at, at + len(one.ids) - 1)
            inputs[row, here] = one.ids[:-1]
            targets[row, here] = np.where(one.learned[1:], one.ids[1:], IGNORED)
            documents[row, here] = number
            at = here.stop
        documents[row, at:] = len(members)
    long = sum(len(one.ids) > context + 1 for one in all_of_them)
    return Windows(inputs, targets, documents, cut=long, unlearned=len(some) - len(kept))


class ConversationBatches:
    """The global batch of each step, a pure function of (seed, step).

    Args:
        encoded: the training conversations.
        context: T.
        batch_tokens: positions in a global batch; it has batch_tokens // context windows.
        pad_id: fills windows.
        seed: the data seed.

    Raises:
        UserError: there is nothing to learn from.
    """

    def __init__(self, encoded: Sequence[Encoded], context: int, batch_tokens: int, pad_id: int, seed: int) -> None:
        order = permute(np.arange(len(encoded)), len(encoded), fold(seed, "packing")).tolist() if encoded else []
        self.windows = windows((encoded[i] for i in order), context, pad_id)
        if not len(self.windows.inputs):
            raise UserError("the train split has no answer to learn from")
        self.size, self.seed = batch_tokens // context, seed

    @property
    def steps_per_epoch(self) -> int:
        """The steps in which as many windows are read as there are (rounded up)."""
        return -(-len(self.windows.inputs) // self.size)

    def epoch(self, step: int) -> float:
        """Return the passes completed when `step` (from 0) begins."""
        return step * self.size / len(self.windows.inputs)

    def rows(self, step: int, rank: int, world: int) -> dict[str, Ids]:
        """Return the rows rank, rank + world, ... of the global batch of a step, see `Windows.rows`."""
        count = len(self.windows.inputs)
        places = positions(step, self.size, rank, world)
        order = np.array(
            [permute(int(place % count), count, fold(self.seed, "windows", int(place // count))) for place in places],
            dtype=np.int64,
        )
        return self.windows.rows(order)


def messages_of(record: Mapping[str, Any], answer: str | None = None) -> Messages:
    """Return the messages of a stored record; with another last answer if one is given."""
    messages: list[Mapping[str, str]] = record["messages"]
    return messages if answer is None else [*messages[:-1], {"role": ASSISTANT, "content": answer}]
