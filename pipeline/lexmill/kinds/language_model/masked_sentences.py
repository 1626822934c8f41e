"""Pseudo-log-likelihoods of sentences (Salazar et al. 2020) by a language model that is read in both directions.

Each token is masked alone and predicted at the position before it, as the method `hybrid` trains it. Cost: a pass over
the sentence for each of its tokens.

Shape letters: N masked tokens, T tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from lexmill.base.errors import UserError
from lexmill.data.masking import vocabulary
from lexmill.decoding.predictor import BATCH_TOKENS, Predictor


def log_probabilities(model: Predictor, texts: Sequence[str]) -> list[float]:
    """Return the sum of the log-probabilities of the tokens of each text, between two end tokens.

    A text longer than the context is read in parts.

    Raises:
        UserError: the network reads from the left only, or its tokenizer has no mask token.
    """
    module, tokenizer = cast(Any, model.module), model.tokenizer
    if not hasattr(module, "both_directions"):
        raise UserError(f"'{model.name}' reads from the left only; leave out --masked")
    words, room = vocabulary(tokenizer), max(1, module.context - 2)
    found = []
    for ids in tokenizer.encode_batch(texts):
        total = 0.0
        for start in range(0, len(ids), room):
            piece = [tokenizer.eos_id, *ids[start : start + room], tokenizer.eos_id]
            places = [i for i in range(1, len(piece) - 1) if not words.special[piece[i]]]
            total -= _nats(module, piece, places, words.mask_id)
        found.append(total)
    return found


def _nats(module: Any, piece: Sequence[int], places: Sequence[int], mask_id: int) -> float:
    """Return the nats of the tokens at these places, each masked alone."""
    import torch

    ids, nats = torch.tensor(piece, device=next(module.parameters()).device), 0.0  # (T,)
    for some in torch.tensor(places, device=ids.device).split(max(1, BATCH_TOKENS // len(piece))):
        rows = torch.arange(len(some), device=ids.device)
        read = ids.repeat(len(some), 1)  # (N, T)
        read[rows, some] = mask_id
        with torch.inference_mode():
            logits = module.logits(module.both_directions(read)[rows, some - 1]).double()  # (N, V)
        nats += float(torch.nn.functional.cross_entropy(logits, ids[some], reduction="sum"))
    return nats
