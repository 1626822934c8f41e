"""Pseudo-log-likelihoods of sentences by an encoder (Salazar et al. 2020), and the last words that it fills in."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lexmill.base.errors import UserError
from lexmill.decoding import masked_tokens
from lexmill.decoding.predictor import Predictor
from lexmill.kinds.encoder import masked


def log_probabilities(model: Predictor, texts: Sequence[str]) -> list[float]:
    """Return the sum of the log-probabilities of the tokens of each text, each masked alone, unknown ones left out."""
    return masked_tokens.log_probabilities(masked.reader(model), texts)


def last_words(model: Predictor, texts: Sequence[tuple[str, str]]) -> list[tuple[bool, float]]:
    """Return whether all tokens of each last word, masked together, are the likeliest, and their nats.

    The encoder reads the end of a text that is too long.

    Raises:
        UserError: a word alone is longer than that.
    """
    import torch

    tokenizer, reader = model.tokenizer, masked.reader(model)
    room = reader.room
    found = []
    for before, word in texts:
        start = before.rstrip()  # a word's token may start with the space before it
        context, target = tokenizer.encode(start), tokenizer.encode(before[len(start) :] + word)
        if len(target) > room:
            raise UserError(f"the word {word!r} has {len(target)} tokens, but the encoder reads {room}")
        context = context[max(0, len(context) + len(target) - room) :]
        ids = reader.enclosed([*context, *[reader.words.mask_id] * len(target)])
        places = np.arange(len(ids))
        logits = reader.logits(ids, (places > len(context)) & (places < len(ids) - 1)).cpu()
        nats = torch.nn.functional.cross_entropy(logits, torch.tensor(target), reduction="sum")
        found.append((bool(np.array_equal(logits.argmax(1).numpy(), target)), float(nats)))
    return found
