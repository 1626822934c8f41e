"""Probabilities of masked tokens, by any network that predicts them from both sides.

Each token of a text is masked once: a seventh of them at a time, as in training, or each alone (Salazar et al. 2020),
whose sum is the pseudo-log-likelihood. A text is cut into pieces as training texts are.

Shape letters: B pieces, T tokens, M masked tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lexmill.data.masking import Flags, Ids, Vocabulary, vocabulary
from lexmill.data.permutation import fold
from lexmill.data.texts import pad, piece_lengths
from lexmill.decoding.batching import by_length
from lexmill.decoding.predictor import BATCH_TOKENS

if TYPE_CHECKING:
    import numpy.typing as npt
    import torch
    from torch import Tensor

    from lexmill.tokenizers import Tokenizer

PASSES = 7  # each token is masked in one: about 15 % at a time


@dataclass(frozen=True)
class Reader:
    """A network that predicts masked tokens; the `reader` of a kind's module `masked` makes it.

    Attributes:
        predict: maps tokens, which of them are real, and which are masked, (B, T) each, to the logits of the masked
            ones, (M, V).
        begin: the token before a text; the end token follows it.
        max_tokens: of a piece, these two included.
        device: the network's.
    """

    predict: Callable[[Tensor, Tensor, Tensor], Tensor]
    tokenizer: Tokenizer
    begin: int
    max_tokens: int
    device: torch.device

    @property
    def room(self) -> int:
        """Tokens of text in a piece."""
        return self.max_tokens - 2

    @property
    def words(self) -> Vocabulary:
        """What masking needs of the tokenizer; raise `UserError` if it has no mask token."""
        return vocabulary(self.tokenizer)

    @property
    def special(self) -> Flags:
        """Which tokens are never masked, (V,)."""
        return self.words.special

    def scores(self, texts: Sequence[Sequence[int]], *, batch_tokens: int, alone: bool = False) -> list[Scores]:
        """See `scores`."""
        return scores(self, texts, batch_tokens=batch_tokens, alone=alone)

    def enclosed(self, ids: Sequence[int] | Ids) -> Ids:
        """Return the ids of a piece between the tokens before and after it."""
        return np.array([self.begin, *ids, self.tokenizer.eos_id], dtype=np.int64)

    def logits(self, ids: Ids, masked: Flags) -> Tensor:
        """Return the logits (M, V), in float64, at the masked places of one piece, (T,) each."""
        import torch

        read, chosen = (torch.from_numpy(one).to(self.device)[None] for one in (ids, masked))
        with torch.inference_mode():
            return self.predict(read, torch.ones_like(chosen), chosen).double()


@dataclass(frozen=True)
class Scores:
    """Of the tokens of a text: nats, (T,), and whether the most probable one is right, (T,); of special ones 0."""

    nats: npt.NDArray[np.float64]
    right: Flags


@dataclass(frozen=True)
class _Row:
    text: int
    start: int  # of the piece in its text
    ids: Ids  # with begin and end
    chosen: Ids  # positions in `ids`


def log_probabilities(reader: Reader, texts: Sequence[str]) -> list[float]:
    """Return the sum of the log-probabilities of the tokens of each text, each masked alone, unknown ones left out."""
    found = scores(reader, reader.tokenizer.encode_batch(texts), batch_tokens=BATCH_TOKENS, alone=True)
    return [-float(one.nats.sum()) for one in found]


def scores(reader: Reader, texts: Sequence[Sequence[int]], *, batch_tokens: int, alone: bool = False) -> list[Scores]:
    """Score texts given as token ids; no result depends on the other texts.

    Args:
        reader: its network in eval mode.
        batch_tokens: tokens in one forward pass, padding included.
        alone: mask one token at a time, not a seventh of them.
    """
    import torch
    from torch.nn import functional

    words, found = reader.words, [Scores(np.zeros(len(text)), np.zeros(len(text), dtype=np.bool_)) for text in texts]
    rows = [_Row(i, *row) for i, text in enumerate(texts) for row in _rows(text, reader, alone)]
    for group in by_length([len(row.ids) for row in rows], batch_tokens):
        tokens, mask = pad([rows[i].ids.tolist() for i in group], reader.tokenizer.pad_id)
        chosen = np.zeros_like(mask)
        for at, i in enumerate(group):
            chosen[at, rows[i].chosen] = True
        right = tokens[chosen]
        read = np.where(chosen, words.mask_id, tokens)
        with torch.inference_mode():
            logits = reader.predict(*(torch.from_numpy(one).to(reader.device) for one in (read, mask, chosen)))
            labels = torch.from_numpy(right).to(reader.device)
            nats = functional.cross_entropy(logits.float(), labels, reduction="none").double().cpu().numpy()
            best = (logits.argmax(1) == labels).cpu().numpy()
        at = 0
        for i in group:
            row = rows[i]
            places = row.start + row.chosen - 1
            found[row.text].nats[places] = nats[at : at + len(places)]
            found[row.text].right[places] = best[at : at + len(places)]
            at += len(places)
    return found


def _rows(ids: Sequence[int], reader: Reader, alone: bool) -> Iterator[tuple[int, Ids, Ids]]:
    """Yield where a piece starts, its ids with begin and end, and the positions in these that are masked."""
    start = 0
    for length in piece_lengths(len(ids), reader.room):
        piece = reader.enclosed(ids[start : start + length])
        order = np.flatnonzero(~reader.words.special[piece[1:-1]])
        if not alone:  # the same masks for equal pieces, whatever is around them
            order = np.random.default_rng(fold(0, piece.tobytes().hex())).permutation(order)
        for part in np.array_split(order, len(order) if alone else min(PASSES, len(order))) if len(order) else ():
            yield start, piece, np.sort(part) + 1
        start += length
