"""What each word of a text adds to a classifier's answer, by integrated gradients (Sundararajan et al. 2017).

The path goes from embeddings of zeros to the text's own, while begin and end tokens keep theirs. The contributions of
all tokens add up to what the path changes in the log odds of the label, but for the error of the sum over its steps.

Shape letters: S steps, K windows of a text, T tokens, D width, L labels.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lexmill.base.budgets import MAX_CONTEXT
from lexmill.data.texts import SPECIAL, Text, encode, read, windows
from lexmill.models.input_embeddings import embedding_of
from lexmill.tokenizers import Tokenizer

STEPS = 32
_WORD = re.compile(r"\S+")


def log_odds(logits: Tensor, label: int) -> Tensor:
    """Return log(p / (1 - p)) of a label, (B,), from logits (B, L)."""
    others = torch.cat([logits[:, :label], logits[:, label + 1 :]], dim=1)
    return logits[:, label] - others.logsumexp(dim=1)


def contributions(
    module: nn.Module, windows: Sequence[Sequence[int]], label: int, kept: frozenset[int]
) -> Tensor | None:
    """Return what each token adds to the log odds of a label, (K, T) float64; None: no gradient leads to the answer.

    Args:
        module: a classifier in eval mode, whose embedding `embedding_of` finds.
        windows: of a text, equally long; one where it is short.
        label: the number of a label, of two or more.
        kept: tokens whose embeddings stay as they are.
    """
    embedding = embedding_of(module)
    device = embedding.weight.device

    def along(tokens: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
        """Return the path of a window (S, T, D), its whole change (1, T, D), and the logits on it (S, L)."""
        row = torch.tensor([tokens], device=device)
        with torch.no_grad():
            whole = embedding(row)  # (1, T, D)
        stays = torch.tensor([[token in kept for token in tokens]], device=device).unsqueeze(-1)  # (1, T, 1)
        start = torch.where(stays, whole, 0.0)
        # The middle of each step: the error falls with the square of their number.
        shares = (torch.arange(STEPS, device=device, dtype=whole.dtype) + 0.5) / STEPS
        path = (start + shares[:, None, None] * (whole - start)).requires_grad_()
        hook = embedding.register_forward_hook(lambda *_: path)
        try:
            logits = module(row.expand(STEPS, -1), torch.ones_like(row, dtype=torch.bool).expand(STEPS, -1))
        finally:
            hook.remove()
        return path, whole - start, logits

    # All windows move at once. One window's graph is in memory at a time: first what each adds to the mean logits.
    with torch.no_grad():
        logits = torch.stack([along(tokens)[2] for tokens in windows]).mean(dim=0)  # (S, L)
    logits.requires_grad_()
    (of_logits,) = torch.autograd.grad(log_odds(logits, label).sum(), logits)
    found = []
    for tokens in windows:
        path, change, own = along(tokens)
        if not own.requires_grad:
            return None  # votes of neighbours
        (gradient,) = torch.autograd.grad(own, path, of_logits / len(windows))
        found.append((change[0].double() * gradient.double().mean(dim=0)).sum(dim=-1).cpu())
    return torch.stack(found)


def words(
    module: nn.Module, tokenizer: Tokenizer, text: Text, label: int, config: Mapping[str, Any]
) -> list[tuple[str, float]] | None:
    """Return the words of a text, each with what it adds to the log odds of a label.

    None: the network has no embedding, or no gradient leads from its answer to it.

    Words that are cut add 0; a word in several windows adds what it adds in all of them. Of a pair the words of both
    texts follow each other.

    Args:
        config: the model's.
    """
    if embedding_of(module, missing_ok=True) is None:
        return None
    sides = (text,) if isinstance(text, str) else text
    rows = read(tokenizer, [text], config).rows
    added = contributions(module, rows, label, frozenset({tokenizer.bos_id, tokenizer.eos_id}))
    if added is None:
        return None
    tokens, values = rows[0], added[0].tolist()
    if len(rows) > 1:
        tokens = encode(tokenizer, [text], MAX_CONTEXT)[0]
        room = config["max_tokens"] - SPECIAL
        whole = torch.zeros(len(tokens), dtype=torch.float64)
        for begin, row in zip(windows(len(tokens) - SPECIAL, room, config["stride"]), added, strict=True):
            whole[begin + 1 : begin + 1 + room] += row[1:-1]
        values = whole.tolist()
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
