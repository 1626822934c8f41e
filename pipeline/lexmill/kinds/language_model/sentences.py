"""Log-probabilities of sentences by a language model, and the last words that it would write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from lexmill.base.errors import UserError
from lexmill.decoding.predictor import BATCH_TOKENS, Predictor
from lexmill.kinds.language_model.mixture_scores import scorer_of

_OVERLAP = 0.5  # each token of a text longer than the context has half a context before it


def log_probabilities(model: Predictor, texts: Sequence[str]) -> list[float]:
    """Return the log-probability of each text, its end token included."""
    scorer = scorer_of(model.module, model.tokenizer.eos_id, BATCH_TOKENS, _OVERLAP)
    return [float(values.sum()) for values in scorer.log_probabilities(model.tokenizer.encode_batch(texts))]


def last_words(model: Predictor, texts: Sequence[tuple[str, str]]) -> list[tuple[bool, float]]:
    """Return whether greedy decoding writes the tokens of each last word after what is before it, and their nats.

    The model reads the end of a text that is longer than the context.

    Raises:
        UserError: a word alone is longer than the context.
    """
    import torch

    tokenizer, module = model.tokenizer, cast(Any, model.module)
    device, found = next(model.module.parameters()).device, []
    for before, word in texts:
        start = before.rstrip()  # a word's token may start with the space before it
        target = tokenizer.encode(before[len(start) :] + word)
        if len(target) > module.context:
            raise UserError(f"the word {word!r} has {len(target)} tokens, but the context is {module.context}")
        ids = [tokenizer.eos_id, *tokenizer.encode(start), *target][-module.context - 1 :]
        with torch.inference_mode():
            logits = module(torch.tensor([ids[:-1]], device=device))[0, -len(target) :].double().cpu()  # (T, V)
        right = torch.tensor(target)
        nats = torch.nn.functional.cross_entropy(logits, right, reduction="sum")
        found.append((bool((logits.argmax(1) == right).all()), float(nats)))
    return found
