"""Predictions of a packaged encoder: the most probable tokens for each [MASK] of a text.

An answer is a list, for each mask the `top` tokens: {"mask": its number from 1, "token", "probability", "text": the
text with this mask filled in}. A text without a mask is asked for the token after its end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from lexmill.base.errors import UserError
from lexmill.data.masking import Ids, vocabulary
from lexmill.decoding import predictor
from lexmill.kinds.encoder.scoring import masking_network

if TYPE_CHECKING:
    from torch import nn

    from lexmill.tokenizers import Tokenizer

MASK = "[MASK]"  # as people write it, whatever the tokenizer calls it


class Predictor(predictor.Predictor):
    """Fills in masks."""

    most: ClassVar[Mapping[str, int]] = {"top": 1000}

    @classmethod
    def params(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        return {"top": 5}

    @classmethod
    def example(cls, config: Mapping[str, Any]) -> Any:
        return [{"mask": 1, "token": "", "probability": 0.5, "text": ""}]

    def answer(self, texts: Sequence[str], chosen: Mapping[str, Any]) -> list[Any]:
        return fill(self.module, self.tokenizer, texts, self.config["max_tokens"], top=chosen["top"])


def fill(
    module: nn.Module, tokenizer: Tokenizer, texts: Sequence[str], max_tokens: int, *, top: int
) -> list[list[dict[str, Any]]]:
    """Fill in the masks of each text; each of several is filled in while the others stay masks.

    Of a longer text than `max_tokens` the tokens around its masks are read.

    Raises:
        UserError: `top` is below 1, or the masks of a text are further apart than the network reads.
    """
    import torch

    if top < 1:
        raise UserError(f"top is {top}; ask for one token or more")
    words, network = vocabulary(tokenizer), masking_network(module)
    device, answers = next(module.parameters()).device, []
    for text in texts:
        pieces = text.split(MASK) if MASK in text else [text, ""]
        ids = masked_ids(tokenizer, pieces, words.mask_id, max_tokens)
        read = torch.from_numpy(ids).to(device)[None]  # (1, T)
        chosen = read == words.mask_id
        with torch.inference_mode():
            logits, _ = network(read, torch.ones_like(chosen), chosen)
            logits[:, torch.from_numpy(words.special).to(device)] = -torch.inf
            shares = logits.double().softmax(1)
            best = shares.topk(min(top, len(words.ordinary)), dim=1)
        found = []
        for number, (values, places) in enumerate(zip(best.values.tolist(), best.indices.tolist(), strict=True), 1):
            for value, token in zip(values, places, strict=True):
                shown = _shown(tokenizer, token)
                whole = _joined(pieces, number, shown, tokenizer)
                found.append({"mask": number, "token": shown.strip() or shown, "probability": value, "text": whole})
        answers.append(found)
    return answers


def masked_ids(tokenizer: Tokenizer, pieces: Sequence[str], mask_id: int, max_tokens: int) -> Ids:
    """Return the ids of the pieces of a text with a mask between each two, cut to `max_tokens` around the masks."""
    inner: list[int] = []
    texts = [_before(piece, i, pieces, tokenizer) for i, piece in enumerate(pieces)]
    for i, ids in enumerate(tokenizer.encode_batch(texts)):
        inner += [*([mask_id] if i else []), *ids]
    room, places = max_tokens - 2, np.flatnonzero(np.array(inner) == mask_id)
    if places[-1] - places[0] >= room:
        raise UserError(f"the masks of a text are {places[-1] - places[0]} tokens apart, but the encoder reads {room}")
    first, last = int(places[0]), int(places[-1])
    start = max(0, min((first + last) // 2 - room // 2, len(inner) - room), last - room + 1)
    return np.array([tokenizer.bos_id, *inner[start : start + room], tokenizer.eos_id], dtype=np.int64)


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
