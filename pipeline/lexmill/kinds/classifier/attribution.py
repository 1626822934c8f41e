"""What each word of a text adds to a classifier's answer, by integrated gradients (Sundararajan et al. 2017).

The path goes from embeddings of zeros to the text's own, while begin and end tokens keep theirs. The contributions of
all tokens add up to what the path changes in the log odds of the label, but for the error of the sum over its steps.

Shape letters: S steps, T tokens, D width.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from lexmill.data.texts import Text, encode
from lexmill.models.input_embeddings import embedding_of
from lexmill.tokenizers import Tokenizer

STEPS = 32
_WORD = re.compile(r"\S+")


def log_odds(logits: Tensor, label: int) -> Tensor:
    """Return log(p / (1 - p)) of a label, (B,), from logits (B, L)."""
    others = torch.cat([logits[:, :label], logits[:, label + 1 :]], dim=1)
    return logits[:, label] - others.logsumexp(dim=1)


def contributions(module: nn.Module, tokens: Sequence[int], label: int, kept: frozenset[int]) -> Tensor | None:
    """Return what each token adds to the log odds of a label, (T,) float64; None: no gradient leads to the answer.

    Args:
        module: a classifier in eval mode, whose embedding `embedding_of` finds.
        tokens: a text.
        label: the number of a label, of two or more.
        kept: tokens whose embeddings stay as they are.
    """
    embedding = embedding_of(module)
    row = torch.tensor([tokens], device=embedding.weight.device)
    with torch.no_grad():
        whole = embedding(row)  # (1, T, D)
    stays = torch.tensor([[token in kept for token in tokens]], device=row.device).unsqueeze(-1)  # (1, T, 1)
    start = torch.where(stays, whole, 0.0)
    # The middle of each step: the error falls with the square of their number.
    shares = (torch.arange(STEPS, device=row.device, dtype=whole.dtype) + 0.5) / STEPS
    path = (start + shares[:, None, None] * (whole - start)).requires_grad_()  # (S, T, D)
    hook = embedding.register_forward_hook(lambda *_: path)
    try:
        logits = module(row.expand(STEPS, -1), torch.ones_like(row, dtype=torch.bool).expand(STEPS, -1))
    finally:
        hook.remove()
    if not logits.requires_grad:
        return None  # votes of neighbours
    (gradient,) = torch.autograd.grad(log_odds(logits, label).sum(), path)
    return ((whole - start)[0].double() * gradient.double().mean(dim=0)).sum(dim=-1).cpu()


def words(
    module: nn.Module, tokenizer: Tokenizer, text: Text, label: int, max_tokens: int
) -> list[tuple[str, float]] | None:
    """Return the words of a text, each with what it adds to the log odds of a label.

    None: the network has no embedding, or no gradient leads from its answer to it.

    Words beyond `max_tokens` add 0. Of a pair the words of both texts follow each other.
    """
    if embedding_of(module, missing_ok=True) is None:
        return None
    sides = (text,) if isinstance(text, str) else text
    tokens = encode(tokenizer, [text], max_tokens)[0]
    added = contributions(module, tokens, label, frozenset({tokenizer.bos_id, tokenizer.eos_id}))
    if added is None:
        return None
    values = added.tolist()
    found: list[tuple[str, float]] = []
    place = 1
    for side in sides:
        spans = tokenizer.encode_offsets([side])[0][1]
        left = tokens.index(tokenizer.eos_id, place) - place  # tokens of this side that were not cut
        for word in _WORD.finditer(side):
            inside = [
                values[place + i]
                for i, (begin, end) in enumerate(spans[:left])
                if begin < word.end() and end > word.start()
            ]
            found.append((word[0], sum(inside)))
        place += left + len(tokenizer.between)
    return found
