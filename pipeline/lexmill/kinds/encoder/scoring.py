"""Probabilities that an encoder gives to masked tokens, on texts as it reads them.

Each token of a text is masked once: a seventh of them at a time, as in training, or each alone (Salazar et al. 2020),
whose sum is the pseudo-log-likelihood. A text is cut into pieces as training texts are.

Shape letters: B pieces, T tokens, M masked tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lexmill.data.masking import Ids, Vocabulary
from lexmill.data.permutation import fold
from lexmill.data.texts import pad
from lexmill.decoding.batching import by_length
from lexmill.kinds.encoder.batches import piece_lengths
from lexmill.kinds.encoder.blocks import Scores

if TYPE_CHECKING:
    from torch import nn

    from lexmill.tokenizers import Tokenizer

PASSES = 7  # each token is masked in one: about 15 % at a time


@dataclass(frozen=True)
class _Row:
    text: int
    start: int  # of the piece in its text
    ids: Ids  # with begin and end
    chosen: Ids  # positions in `ids`


def masking_network(module: nn.Module) -> Any:
    """Return the part of a pre-trained network that fills in masked tokens: itself, or its generator."""
    return getattr(module, "generator", module)


def scores(
    module: nn.Module,
    tokenizer: Tokenizer,
    words: Vocabulary,
    texts: Sequence[Sequence[int]],
    *,
    max_tokens: int,
    batch_tokens: int,
    alone: bool = False,
) -> list[Scores]:
    """Score texts given as token ids; no result depends on the other texts.

    Args:
        module: as in a model folder, in eval mode.
        max_tokens: of a piece, begin and end included.
        batch_tokens: tokens in one forward pass, padding included.
        alone: mask one token at a time, not a seventh of them.
    """
    import torch
    from torch.nn import functional

    network, device = masking_network(module), next(module.parameters()).device
    found = [Scores(np.zeros(len(text)), np.zeros(len(text), dtype=np.bool_)) for text in texts]
    rows = [
        _Row(i, *row) for i, text in enumerate(texts) for row in _rows(text, tokenizer, words, max_tokens - 2, alone)
    ]
    for group in by_length([len(row.ids) for row in rows], batch_tokens):
        tokens, mask = pad([rows[i].ids.tolist() for i in group], tokenizer.pad_id)
        chosen = np.zeros_like(mask)
        for at, i in enumerate(group):
            chosen[at, rows[i].chosen] = True
        right = tokens[chosen]
        read = np.where(chosen, words.mask_id, tokens)
        with torch.inference_mode():
            logits, _ = network(*(torch.from_numpy(one).to(device) for one in (read, mask, chosen)))  # (M, V)
            labels = torch.from_numpy(right).to(device)
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


def _rows(
    ids: Sequence[int], tokenizer: Tokenizer, words: Vocabulary, room: int, alone: bool
) -> Iterator[tuple[int, Ids, Ids]]:
    """Yield where a piece starts, its ids with begin and end, and the positions in these that are masked."""
    start = 0
    for length in piece_lengths(len(ids), room):
        piece = np.array([tokenizer.bos_id, *ids[start : start + length], tokenizer.eos_id], dtype=np.int64)
        order = np.flatnonzero(~words.special[piece[1:-1]])
        if not alone:  # the same masks for equal pieces, whatever is around them
            order = np.random.default_rng(fold(0, piece.tobytes().hex())).permutation(order)
        for part in np.array_split(order, len(order) if alone else min(PASSES, len(order))) if len(order) else ():
            yield start, piece, np.sort(part) + 1
        start += length
