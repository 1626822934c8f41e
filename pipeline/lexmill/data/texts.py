"""Batches of texts, drawn at random and padded, and how to cut one so that little is padded.

An epoch shuffles the texts by a key and cuts the row into equal batches (the last may be smaller): a function of (seed,
epoch). Batches of texts of like length would need less padding, but where length follows the label, as short ham and
long spam, each would have one label. So a batch is random, its rows are sorted by length, and it goes through the
network in parts, each padded to its own longest text.

A text that is longer than the network reads at once is cut, or read in windows that overlap (`windows`). An epoch then
has one window of each text, another one in the next, so what is counted in texts stays so, and a text counts once
however long it is. Its output is the mean over all of its windows.

Letters: B texts, R rows (windows), T time.
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

SPECIAL = 2  # a text's begin and end token

Text = str | tuple[str, str]
"""A text, or a pair of texts."""


def records_of(corpus: PreparedCorpus, split: str) -> list[dict[str, Any]]:
    """Return the records of a split; raise `UserError` if there are none."""
    found = list(corpus.records(split))
    if not found:
        raise UserError(f"the {split} split is empty; give `splits` other shares", corpus.folder)
    return found


def reading(corpus: PreparedCorpus, tokenizer: Tokenizer, max_tokens: int, stride: int | None) -> dict[str, int]:
    """Return what a model's config says of how it reads texts: the longest, and for pairs the token between them.

    Args:
        stride: between the begins of two windows of a longer text; 0: half of one; None: it is cut.

    Raises:
        UserError: the texts are pairs, to be read in windows.
    """
    pairs = "second" in next(corpus.records("train"), {})
    if pairs and stride is not None:
        raise UserError(
            "data.long_texts: windows are of one text each, and this corpus has pairs; set long_texts: cut",
            corpus.folder,
        )
    return {
        "max_tokens": max_tokens,
        **({"separator": tokenizer.between[0]} if pairs else {}),
        **({} if stride is None else {"stride": stride or (max_tokens - SPECIAL) // 2}),
    }


@dataclass(frozen=True)
class Read:
    """Texts as the network reads them.

    Attributes:
        rows: ids, (R, at most max_tokens), the windows of each text after each other.
        counts: how many rows each text has, (B,).
    """

    rows: list[list[int]]
    counts: list[int]


def read(tokenizer: Tokenizer, texts: Sequence[Text], how: Mapping[str, Any]) -> Read:
    """Return texts between begin and end tokens, cut or in windows.

    Args:
        how: a model's config, or what `reading` returned.

    Raises:
        UserError: a text is not Unicode.
    """
    step, most = how.get("stride"), how["max_tokens"]
    if step is None:
        return Read(encode(tokenizer, texts, most), [1] * len(texts))
    rows, counts = [], []
    for text in tokenizer.encode_batch([text for text in texts if isinstance(text, str)]):
        begins = windows(len(text), most - SPECIAL, step)
        rows += [[tokenizer.bos_id, *text[i : i + most - SPECIAL], tokenizer.eos_id] for i in begins]
        counts.append(len(begins))
    return Read(rows, counts)


def windows(length: int, room: int, step: int) -> list[int]:
    """Return where the windows of a text begin: every `step` tokens.

    The last one ends with the text and is as long as the others, so no answer hangs on a few last tokens.

    Args:
        length: tokens of the text.
        room: tokens of a window, at least `step`.
    """
    last = max(0, length - room)
    return [*range(0, last, step), last]


def encode(tokenizer: Tokenizer, texts: Sequence[Text], max_tokens: int) -> list[list[int]]:
    """Return the ids of texts between the tokenizer's begin and end tokens, cut to at most `max_tokens` each.

    A pair is `<begin> first <end> second <end>`, with two end tokens or another one between where the tokenizer has it
    so; of one that
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


def counted(batches: TextBatches, max_tokens: int) -> dict[str, int]:
    """Return counts of the texts of train, for the metrics; those in windows where there are any."""
    found = {
        "train_texts": len(batches),
        "train_texts_at_max_tokens": int((batches.lengths[batches.first] >= max_tokens).sum()),
    }
    windowed = int((batches.counts > 1).sum())
    return found | ({"train_texts_in_windows": windowed} if windowed else {})


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

    index: Ids  # (B,) positions of the texts; windows of a text follow each other
    tokens: Ids  # (B, T)
    mask: Mask  # (B, T)


class TextBatches:
    """The global batch of each step, a pure function of (seed, step).

    Args:
        ids: of each text, special tokens included; or of each window of the first text, the second ...
        batch_size: texts in a global batch.
        seed: the data seed.
        pad_id: the padding token.
        counts: how many windows each text has; None: one.

    Raises:
        UserError: there are no texts, or a text has no tokens.
    """

    def __init__(
        self,
        ids: Sequence[Sequence[int]],
        batch_size: int,
        seed: int,
        pad_id: int,
        counts: Sequence[int] | None = None,
    ) -> None:
        if not ids:
            raise UserError("there are no texts to make batches of")
        self.ids, self.batch_size, self.seed, self.pad_id = ids, batch_size, seed, pad_id
        self.lengths: Ids = np.array([len(text) for text in ids], dtype=np.int64)
        if not self.lengths.all():
            raise UserError(f"text {int(np.argmin(self.lengths))} has no tokens, not even special ones")
        self.counts: Ids = np.ones(len(ids), dtype=np.int64) if counts is None else np.array(counts, dtype=np.int64)
        assert self.counts.sum() == len(ids), "every window is of a text"
        self.first: Ids = self.counts.cumsum() - self.counts  # row of each text
        self._text_of: Ids = np.repeat(np.arange(len(self.counts)), self.counts)  # (R,)

    def __len__(self) -> int:
        """Return the number of texts."""
        return len(self.counts)

    @property
    def steps_per_epoch(self) -> int:
        return -(-len(self) // self.batch_size)

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
        n, start = len(self), place * self.batch_size
        places = np.arange(start, min(start + self.batch_size, n), dtype=np.int64)
        texts = permute(places, n, fold(self.seed, "texts", epoch))
        return self.drawn(texts, np.full(len(texts), epoch), rank, world)

    def drawn(self, texts: Ids, times: Ids, rank: int, world: int) -> Batch:
        """Return every `world`-th of these texts, the longest first, each by one window.

        Of k windows, k times give each once, in a random order.

        Args:
            times: how often each text came before.
        """
        rows = self.first[texts]
        for i in np.flatnonzero(self.counts[texts] > 1):
            count = int(self.counts[texts[i]])
            through, place = divmod(int(times[i]), count)
            rows[i] += permute(place, count, fold(self.seed, "windows", int(texts[i]), through))
        return self.collate(rows[np.argsort(-self.lengths[rows], kind="stable")][rank::world])

    def evaluation_batches(self) -> Iterator[Batch]:
        """Yield every text once, sorted by length, with all of its windows; `Batch.index` says which.

        A batch has no more rows than `batch_size`, unless one text has more windows.
        """
        order, chosen = np.argsort(self.lengths[self.first], kind="stable").tolist(), list[int]()
        for text in order:
            if chosen and len(chosen) + self.counts[text] > self.batch_size:
                yield self.collate(np.array(chosen, dtype=np.int64))
                chosen = []
            chosen += range(self.first[text], self.first[text] + self.counts[text])
        yield self.collate(np.array(chosen, dtype=np.int64))

    def collate(self, rows: Ids) -> Batch:
        """Pad these windows into a batch."""
        return Batch(self._text_of[rows], *pad([self.ids[i] for i in rows], self.pad_id))


def piece_lengths(total: int, most: int) -> list[int]:
    """Return the lengths of the pieces of a text of `total` tokens: as few as fit, equal to within one."""
    count = -(-total // most)  # 0 of an empty text
    return [total // count + (i < total % count) for i in range(count)]
