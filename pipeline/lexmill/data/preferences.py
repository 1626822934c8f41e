"""Pairs of a chosen and a rejected answer to the same messages.

Letters: B pairs, T tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lexmill.base.errors import UserError
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.data.conversations import IGNORED, Encoded, encode, messages_of
from lexmill.data.permutation import fold, permute
from lexmill.data.windows import Ids, positions

if TYPE_CHECKING:
    from lexmill.tokenizers import Tokenizer

SIDES = ("chosen", "rejected")


@dataclass(frozen=True)
class Pairs:
    """Pairs of conversations that differ in the last answer; only that is learned.

    Attributes:
        context: longer conversations are cut at the front.
        pad_id: fills rows.
    """

    chosen: list[Encoded]
    rejected: list[Encoded]
    context: int
    pad_id: int

    def __len__(self) -> int:
        return len(self.chosen)

    def rows(self, places: Sequence[int]) -> dict[str, Ids]:
        """Return pairs as a batch: inputs and targets (B, T) of both sides, `IGNORED` where nothing is learned."""
        found: dict[str, Ids] = {}
        for name, side in zip(SIDES, (self.chosen, self.rejected), strict=True):
            some = [side[place].last(self.context + 1) for place in places]
            width = max((len(one.ids) for one in some), default=1) - 1
            inputs = np.full((len(some), width), self.pad_id, dtype=np.int64)
            targets = np.full((len(some), width), IGNORED, dtype=np.int64)
            for row, one in enumerate(some):
                inputs[row, : len(one.ids) - 1] = one.ids[:-1]
                targets[row, : len(one.ids) - 1] = np.where(one.learned[1:], one.ids[1:], IGNORED)
            found |= {f"{name}_inputs": inputs, f"{name}_targets": targets}
        return found


def pairs(corpus: PreparedCorpus, split: str, tokenizer: Tokenizer, context: int) -> Pairs:
    """Read the pairs of a split.

    Raises:
        UserError: there are none, or a conversation has no rejected answer.
    """
    records = list(corpus.records(split))
    if not records:
        raise UserError(f"the {split} split is empty; give it a larger share", corpus.folder)
    lacking = sum("rejected" not in record for record in records)
    if lacking:
        raise UserError(
            f"{lacking:,} of {len(records):,} conversations of {split} have no rejected answer; name its column in"
            " reader.rejected, or train on the answers (recipe.objective: answers)",
            corpus.folder,
        )
    prompts = [len(one.ids) for one in encode(tokenizer, [record["messages"][:-1] for record in records])]
    chosen, rejected = (
        [_last_answer(one, prompt) for one, prompt in zip(encode(tokenizer, conversations), prompts, strict=True)]
        for conversations in (
            [messages_of(record) for record in records],
            [messages_of(record, record["rejected"]) for record in records],
        )
    )
    return Pairs(chosen, rejected, context, tokenizer.pad_id)


def _last_answer(conversation: Encoded, prompt: int) -> Encoded:
    """Learn only what comes after the prompt's tokens."""
    return Encoded(conversation.ids, conversation.learned & (np.arange(len(conversation.ids)) >= prompt))


class PairBatches:
    """The global batch of each step, a pure function of (seed, step).

    Args:
        pairs: of the train split.
        size: B.
        seed: the data seed.
    """

    def __init__(self, pairs: Pairs, size: int, seed: int) -> None:
        self.pairs, self.size, self.seed = pairs, size, seed

    @property
    def steps_per_epoch(self) -> int:
        """The steps in which as many pairs are read as there are (rounded up)."""
        return -(-len(self.pairs) // self.size)

    def epoch(self, step: int) -> float:
        """Return the passes completed when `step` (from 0) begins."""
        return step * self.size / len(self.pairs)

    def rows(self, step: int, rank: int, world: int) -> dict[str, Ids]:
        """Return the rows rank, rank + world, ... of the global batch of a step, see `Pairs.rows`."""
        count = len(self.pairs)
        places = positions(step, self.size, rank, world).tolist()
        return self.pairs.rows([permute(p % count, count, fold(self.seed, "pairs", p // count)) for p in places])
