"""The most probable tokens for each [MASK] of a text.

An answer is a list, for each mask the `top` tokens: {"mask": its number from 1, "token", "probability", "text": the
text with this mask filled in}. A text without a mask is asked for the token after its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lexmill.base.errors import UserError
from lexmill.data.masking import Ids
from lexmill.decoding.masked_tokens import Reader

if TYPE_CHECKING:
    from lexmill.tokenizers import Tokenizer

MASK = "[MASK]"  # as people write it, whatever the tokenizer calls it


def fill(reader: Reader, texts: Sequence[str], *, top: int) -> list[list[dict[str, Any]]]:
    """Fill in the masks of each text; each of several is filled in while the others stay masks.

    Of a longer text than a piece the tokens around its masks are read.

    Raises:
        UserError: `top` is below 1, or the masks of a text are further apart than the network reads.
    """
    import torch

    if top < 1:
        raise UserError(f"top is {top}; ask for one token or more")
    words, tokenizer, answers = reader.words, reader.tokenizer, []
    for text in texts:
        pieces = text.split(MASK) if MASK in text else [text, ""]
        ids = masked_ids(reader, pieces)
        special = torch.from_numpy(words.special).to(reader.device)
        logits = reader.logits(ids, ids == words.mask_id).masked_fill(special, -torch.inf)
        best = logits.softmax(1).topk(min(top, len(words.ordinary)), dim=1)
        found = []
        for number, (values, places) in enumerate(zip(best.values.tolist(), best.indices.tolist(), strict=True), 1):
            for value, token in zip(values, places, strict=True):
                shown = _shown(tokenizer, token)
                whole = _joined(pieces, number, shown, tokenizer)
                found.append({"mask": number, "token": shown.strip() or shown, "probability": value, "text": whole})
        answers.append(found)
    return answers


def masked_ids(reader: Reader, pieces: Sequence[str]) -> Ids:
    """Return the ids of the pieces of a text with a mask between each two, cut to what is read around the masks."""
    tokenizer, mask_id, room = reader.tokenizer, reader.words.mask_id, reader.room
    inner: list[int] = []
    texts = [_before(piece, i, pieces, tokenizer) for i, piece in enumerate(pieces)]
    for i, ids in enumerate(tokenizer.encode_batch(texts)):
        inner += [*([mask_id] if i else []), *ids]
    places = np.flatnonzero(np.array(inner) == mask_id)
    if places[-1] - places[0] >= room:
        raise UserError(f"the masks of a text are {places[-1] - places[0]} tokens apart, but the encoder reads {room}")
    first, last = int(places[0]), int(places[-1])
    start = max(0, min((first + last) // 2 - room // 2, len(inner) - room), last - room + 1)
    return reader.enclosed(inner[start : start + room])


def _before(piece: str, i: int, pieces: Sequence[str], tokenizer: Tokenizer) -> str:
    """Return what is before a mask without the space that a word's token brings along itself."""
    if i < len(pieces) - 1 and piece.endswith(" ") and _brings_space(tokenizer):
        return piece[:-1]
    return piece


def _brings_space(tokenizer: Tokenizer) -> bool:
    """Whether a word's token starts with the space before it, as " king" in byte-level BPE."""
    return len(tokenizer.encode("a a")) == 2


def _shown(tokenizer: Tokenizer, token: int) -> str:
    text = tokenizer.backend.decode([token], skip_special_tokens=False)
    return text if tokenizer.keeps_text else text.strip()


def _joined(pieces: Sequence[str], number: int, shown: str, tokenizer: Tokenizer) -> str:
    """Return the whole text with one mask filled in."""
    left, right = MASK.join(pieces[:number]), MASK.join(pieces[number:])
    if shown.startswith(" ") and left.endswith(" "):
        left = left[:-1]
    return left + shown + right
