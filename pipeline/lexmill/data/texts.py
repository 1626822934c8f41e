"""Batches of texts, drawn at random and padded, and how to cut one so that little is padded.

An epoch shuffles the texts by a key and cuts the row into equal batches (the last may be smaller): a function of (seed,
epoch). Batches of texts of like length would need less padding, but where length follows the label, as short ham and
long spam, each would have one label. So a batch is random, its rows are sorted by length, and it goes through the
network in parts, each padded to its own longest text.

Letters: B texts, T time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from lexmill.base.errors import UserError
from lexmill.base.shown import value_text
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.data.permutation import fold, permute

if TYPE_CHECKING:
    from lexmill.tokenizers import Tokenizer

Ids = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Array = npt.NDArray[Any]

Text = str | tuple[str, str]
"""A text, or a pair of texts."""


def records_of(corpus: PreparedCorpus, split: str) -> list[dict[str, Any]]:
    """Return the records of a split; raise `UserError` if there are none."""
    found = list(corpus.records(split))
    if not found:
        raise UserError(f"the {split} split is empty; give `splits` other shares", corpus.folder)
    return found


def reading(corpus: PreparedCorpus, tokenizer: Tokenizer, max_tokens: int) -> dict[str, int]:
    """Return what a model's config says of how it reads texts: the longest, and for pairs the token between them."""
    pairs = "second" in next(corpus.records("train"), {})
    return {"max_tokens": max_tokens, **({"separator": tokenizer.eos_id} if pairs else {})}


def encode(tokenizer: Tokenizer, texts: Sequence[Text], max_tokens: int) -> list[list[int]]:
    """Return the ids of texts between the tokenizer's begin and end tokens, cut to at most `max_tokens` each.

    A pair is `<begin> first <end> second <end>`, with two end tokens between where the tokenizer has it so; of one that
    is too long the longer side is cut until both are equally long, so no side is lost.

    Raises:
        UserError: a text is not Unicode.
    """
    sides = [side for text in texts for side in ((text,) if isinstance(text, str) else text)]
    encoded, begin, end = iter(tokenizer.encode_batch(sides)), tokenizer.bos_id, tokenizer.eos_id
    found = []
    for text in texts:
        first = next(encoded)
        if isinstance(text, str):
            found.append([begin, *first[: max_tokens - 2], end])
        else:
            one, other = cut_pair(first, next(encoded), max_tokens - 2 - len(tokenizer.between))
            found.append([begin, *one, *tokenizer.between, *other, end])
    return found


def cut_pair(first: Sequence[int], second: Sequence[int], room: int) -> tuple[Sequence[int], Sequence[int]]:
    """Return both sides, together at most `room` long: the longer one is cut to the length of the other, then both."""
    first = first[: max(room - len(second), (room + 1) // 2)]
    return first, second[: room - len(first)]


def as_pairs(texts: Sequence[str]) -> list[tuple[str, str]]:
    """Return texts that hold a tab as the pairs before and after it.

    Raises:
        UserError: a text has no tab, or several.
    """
    found = [tuple(text.split("\t")) for text in texts]
    for text, sides in zip(texts, found, strict=True):
        if len(sides) != 2:
            raise UserError(f"{value_text(text, 60)} is no pair of texts; write one tab between the two")
    return [(sides[0], sides[1]) for sides in found]


def of_record(record: Mapping[str, str]) -> Text:
    """Return the text of a record of a labelled corpus, or its pair of texts."""
    return (record["text"], record["second"]) if "second" in record else record["text"]


def cut(lengths: Ids, pass_cost: int) -> list[int]:
    """Return where the parts of a batch start, and its end: the cut with the least padding and passes.

    A part costs rows x longest + `pass_cost` tokens; the sum over the parts is the least there is (dynamic programming,
    B² operations).

    Args:
        lengths: of the rows, falling, (B,).
        pass_cost: what a pass through the network costs beside its tokens, in tokens.
    """
    starts = np.arange(len(lengths))
    least, last_start = [0], [0]  # of the first 0, 1, ... rows: the cost, and where their last part starts
    for end in range(1, len(lengths) + 1):
        costs = np.array(least) + lengths[:end] * (end - starts[:end]) + pass_cost
        last_start.append(int(np.argmin(costs)))
        least.append(int(costs[last_start[-1]]))
    bounds = [len(lengths)]
    while bounds[-1]:
        bounds.append(last_start[bounds[-1]])
    return bounds[::-1]


def pad(texts: Sequence[Sequence[int]], pad_id: int = 0) -> tuple[Ids, Mask]:
    """Return ids (B, T), padded on the right to the longest, and the mask (B, T), true at real tokens."""
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    width = int(lengths.max(initial=1))
    tokens = np.full((len(texts), width), pad_id, dtype=np.int64)
    for row, text in enumerate(texts):
        tokens[row, : len(text)] = text
    return tokens, np.arange(width)[None, :] < lengths[:, None]


def parts(batch: Mapping[str, Array], pass_cost: int) -> list[Mapping[str, Array]]:
    """Return a batch in parts that need little padding, see `cut`.

    Args:
        batch: `mask` (B, T), the longest text first, other arrays (B, T), cut to the longest text of their part, and
            arrays (B,).
    """
    lengths = batch["mask"].sum(axis=1)
    return [
        {
            name: array[start:end, : lengths[start]] if array.ndim > 1 else array[start:end]
            for name, array in batch.items()
        }
        for start, end in pairwise(cut(lengths, pass_cost))
    ]


@dataclass(frozen=True)
class Batch:
    """Texts, padded on the right; the mask is True at real tokens."""

    index: Ids  # (B,) positions of the texts
    tokens: Ids  # (B, T)
    mask: Mask  # (B, T)


class TextBatches:
    """The global batch of each step, a pure function of (seed, step).

    Args:
        ids: of each text, special tokens included.
        batch_size: texts in a global batch.
        seed: the data seed.
        pad_id: the padding token.

    Raises:
        UserError: there are no texts, or a text has no tokens.
    """

    def __init__(self, ids: Sequence[Sequence[int]], batch_size: int, seed: int, pad_id: int) -> None:
        if not ids:
            raise UserError("there are no texts to make batches of")
        self.ids, self.batch_size, self.seed, self.pad_id = ids, batch_size, seed, pad_id
        self.lengths: Ids = np.array([len(text) for text in ids], dtype=np.int64)
        if not self.lengths.all():
            raise UserError(f"text {int(np.argmin(self.lengths))} has no tokens, not even special ones")

    @property
    def steps_per_epoch(self) -> int:
        return -(-len(self.ids) // self.batch_size)

    def epoch(self, step: int) -> float:
        """Return the passes over the texts completed when `step` (from 0) begins."""
        return step / self.steps_per_epoch

    def batch(self, step: int) -> Batch:
        """Return the global batch of a step, counted from 0."""
        return self.rows(step, 0, 1)

    def rows(self, step: int, rank: int, world: int) -> Batch:
        """Return rows rank, rank + world, ... of the global batch of a step, the longest text first.

        The last batch of an epoch may have fewer rows than there are ranks; some ranks then get 0 rows.
        """
        epoch, place = divmod(step, self.steps_per_epoch)
        n, start = len(self.ids), place * self.batch_size
        places = np.arange(start, min(start + self.batch_size, n), dtype=np.int64)
        texts = permute(places, n, fold(self.seed, "texts", epoch))
        return self.collate(texts[np.argsort(-self.lengths[texts], kind="stable")][rank::world])

    def evaluation_batches(self) -> Iterator[Batch]:
        """Yield every text once, sorted by length; `Batch.index` says which."""
        row = np.argsort(self.lengths, kind="stable").astype(np.int64)
        for start in range(0, len(row), self.batch_size):
            yield self.collate(row[start : start + self.batch_size])

    def collate(self, index: Ids) -> Batch:
        """Pad these texts into a batch."""
        return Batch(index, *pad([self.ids[i] for i in index], self.pad_id))
