"""Pseudo-log-likelihoods of sentences by an encoder (Salazar et al. 2020), and the last words that it fills in."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lexmill.base.errors import UserError
from lexmill.data.masking import vocabulary
from lexmill.decoding.predictor import BATCH_TOKENS, Predictor
from lexmill.kinds.encoder.scoring import masking_network, scores


def log_probabilities(model: Predictor, texts: Sequence[str]) -> list[float]:
    """Return the sum of the log-probabilities of the tokens of each text, each masked alone, unknown ones left out."""
    encoded = model.tokenizer.encode_batch(texts)
    found = scores(
        model.module,
        model.tokenizer,
        vocabulary(model.tokenizer),
        encoded,
        max_tokens=model.config["max_tokens"],
        batch_tokens=BATCH_TOKENS,
        alone=True,
    )
    return [-float(one.nats.sum()) for one in found]


def last_words(model: Predictor, texts: Sequence[tuple[str, str]]) -> list[tuple[bool, float]]:
    """Return whether all tokens of each last word, masked together, are the likeliest, and their nats.

    The encoder reads the end of a text that is too long.

    Raises:
        UserError: a word alone is longer than that.
    """
    import torch

    network, device = masking_network(model.module), next(model.module.parameters()).device
    tokenizer, words = model.tokenizer, vocabulary(model.tokenizer)
    room = model.config["max_tokens"] - 2
    found = []
    for before, word in texts:
        start = before.rstrip()  # a word's token may start with the space before it
        context, target = tokenizer.encode(start), tokenizer.encode(before[len(start) :] + word)
        if len(target) > room:
            raise UserError(f"the word {word!r} has {len(target)} tokens, but the encoder reads {room}")
        context = context[max(0, len(context) + len(target) - room) :]
        ids = [tokenizer.bos_id, *context, *[words.mask_id] * len(target), tokenizer.eos_id]
        read = torch.tensor([ids], device=device)
        chosen = torch.zeros_like(read, dtype=torch.bool)
        chosen[0, 1 + len(context) : -1] = True
        with torch.inference_mode():
            logits, _ = network(read, torch.ones_like(chosen), chosen)
        logits = logits.double().cpu()
        nats = torch.nn.functional.cross_entropy(logits, torch.tensor(target), reduction="sum")
        found.append((bool(np.array_equal(logits.argmax(1).numpy(), target)), float(nats)))
    return found
