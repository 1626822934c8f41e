"""Beam search for translations that have given phrases, by dynamic beam allocation (Post and Vilar 2018).

At each step the places of the beam are shared evenly among the hypotheses by how many tokens of the phrases they have
(their bank): the best of each bank in turn, so that one that has begun a phrase is not crowded out by likelier ones
that have not. Each live hypothesis is continued by its likeliest tokens, and by those that begin or continue a phrase.
The end token may follow only where all phrases are there, and other tokens only where those that are missing still fit.
So every translation has every phrase.

Without phrases it is `beam_search`. One sentence at a time, with lists in place of tensors: several times its cost.

Shape letters: N live hypotheses, T tokens written, V vocabulary.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lexmill.base.errors import UserError
from lexmill.base.shown import value_text
from lexmill.decoding.beam_search import EncoderDecoder, Hypothesis, Sentence, largest, limits_of, log_norm
from lexmill.decoding.coverage import coverage
from lexmill.decoding.limits import exclude
from lexmill.decoding.scripts import UNSPACED
from lexmill.decoding.settings import BeamSearch
from lexmill.tokenizers.tokenizer import TRAINED, SpecialIds

if TYPE_CHECKING:
    from lexmill.tokenizers import Tokenizer

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class Phrase:
    """What a translation must have: `inside` anywhere, or `first` at its beginning; each at least one token."""

    inside: Tokens
    first: Tokens


def spelt(tokenizer: Tokenizer, text: str) -> Phrase:
    """Return a text as a phrase: after a space anywhere if its script has them, without one at the beginning.

    Raises:
        UserError: the tokenizer cannot spell it.
    """
    text = text.strip()
    space = "" if re.match(f"[{UNSPACED}]", text) else " "
    inside, first = (tuple(ids) for ids in tokenizer.encode_batch([space + text, text]))
    if not first or tokenizer.decode(first) != tokenizer.normalize(text):
        raise UserError(f"the model's tokenizer cannot spell the phrase {value_text(text)}")
    return Phrase(inside, first)


def options(phrase: Phrase, written: Tokens) -> list[tuple[int, int]]:
    """Return how a phrase can go on: tokens still needed, and the next one of them; []: it is there."""
    inside, first = phrase.inside, phrase.first
    if written[: len(first)] == first or any(
        written[i : i + len(inside)] == inside for i in range(len(written) - len(inside) + 1)
    ):
        return []
    begun = next(
        k for k in range(min(len(inside) - 1, len(written)), -1, -1) if written[len(written) - k :] == inside[:k]
    )
    found = [(len(inside) - k, inside[k]) for k in {begun, 0}]
    if written == first[: len(written)]:
        found.append((len(first) - len(written), first[len(written)]))
    return found


def needed(phrases: Sequence[Phrase], written: Tokens) -> tuple[int, set[int]]:
    """Return how many more tokens the phrases need at most, and the tokens that begin or continue one."""
    total, saved, tokens = 0, 0, set[int]()
    for phrase in phrases:
        if ways := options(phrase, written):
            total += len(phrase.inside)
            # Two phrases may be begun, but the next token continues one.
            saved = max(saved, *(len(phrase.inside) - count for count, _ in ways))
            tokens |= {token for _, token in ways}
    return total - saved, tokens


@torch.inference_mode()
def constrained_search(
    module: EncoderDecoder,
    source: Tensor,
    source_mask: Tensor,
    search: BeamSearch,
    phrases: Sequence[Phrase],
    *,
    n_best: int = 1,
    prefix: Tokens = (),
    special: SpecialIds = TRAINED,
) -> list[Hypothesis]:
    """Return the `n_best` translations of a source that have all phrases, best first; at least one.

    Args:
        module: an encoder-decoder in eval mode.
        source, source_mask: (1, S) int64 and bool; ends with the end token.
        search: its settings; a translation may be longer than they say where its phrases are.
        phrases: in any order; they may overlap, but room is kept for each of them.
        n_best: at most `search.beam_size`.
        prefix: the first tokens.
        special: the tokenizer's.

    Raises:
        UserError: the model's output is not finite, or prefix and phrases do not fit into its positions.
    """
    limits = limits_of(module, source_mask, search, [prefix])[0]
    least = len(prefix) + needed(phrases, prefix)[0]
    if least > module.max_positions - 1:
        raise UserError(
            f"the phrases of a translation have {least} tokens; the model writes at most {module.max_positions - 1}"
        )
    limits = replace(limits, longest=max(limits.longest, least))
    sentence, device = Sentence(0, limits), source.device
    memory = module.encode(source, source_mask)
    cache = module.new_cache(memory, source_mask)
    live: list[tuple[float, Tokens]] = [(0.0, ())]
    while True:
        step = len(live[0][1])
        last = torch.tensor([[tokens[-1] if tokens else special.bos] for _, tokens in live], device=device)
        logits = module.decode(last, memory, source_mask, cache)[:, -1].float()  # (N, V)
        logs = logits - log_norm(logits)
        free = logs.clone()
        written = torch.tensor([tokens for _, tokens in live], dtype=torch.int64, device=device).view(len(live), step)
        exclude(free, written, [limits] * len(live), search.no_repeat_ngram, special)
        banks: dict[int, list[tuple[float, int, int]]] = {}  # by tokens needed: (-log P, row, token)
        for row, (total, tokens) in enumerate(live):
            may_follow = _continuations(
                logs[row], free[row], tokens, sentence, phrases=phrases, count=search.beam_size, eos=special.eos
            )
            for token, value in may_follow:
                need = needed(phrases, (*tokens, token))[0]
                if token == special.eos or step < len(prefix) or step + 1 + need <= limits.longest:
                    banks.setdefault(need, []).append((-(total + value), row, token))
        chosen = sorted(
            _shared([sorted(banks[need]) for need in sorted(banks)], search.beam_size - len(sentence.finished))
        )
        ended = [(total, live[row][1]) for total, row, token in chosen if token == special.eos]
        covered = [0.0] * len(ended)
        if search.coverage_penalty and ended:
            read, mask = (one.expand(len(ended), -1) for one in (source, source_mask))
            covered = coverage(module, read, mask, [tokens for _, tokens in ended], special)
        for (total, tokens), share in zip(ended, covered, strict=True):
            sentence.finish(tokens, -total, share, search)
        stays = [(-total, row, token) for total, row, token in chosen if token != special.eos]
        if sentence.done(stays[0][0] if stays else -torch.inf, n_best, search):
            return sentence.best(n_best)
        cache.reorder(torch.tensor([row for _, row, _ in stays], device=device))
        live = [(total, (*live[row][1], token)) for total, row, token in stays]


def _continuations(
    logs: Tensor, free: Tensor, written: Tokens, sentence: Sentence, *, phrases: Sequence[Phrase], count: int, eos: int
) -> list[tuple[int, float]]:
    """Return what may follow a hypothesis: the likeliest tokens, and those of the phrases, with their log P.

    Args:
        logs: (V,) of the next token.
        free: (V,), the same with -inf at what the limits exclude.
    """
    if len(written) < len(sentence.limits.prefix):
        token = sentence.limits.prefix[len(written)]
        return [(token, float(logs[token]))]
    missing, wanted = needed(phrases, written)
    if missing:
        free[eos] = -torch.inf
    values, tokens = largest(free[None], count)
    found = {token: value for token, value in zip(tokens[0].tolist(), values[0].tolist(), strict=True)}
    found = {token: value for token, value in found.items() if value > -torch.inf}
    return list((found | {token: float(logs[token]) for token in wanted}).items())


def _shared(banks: Sequence[Sequence[tuple[float, int, int]]], places: int) -> list[tuple[float, int, int]]:
    """Return the best of each bank in turn, those with the fewest tokens missing first, until the places are full."""
    turns = max(map(len, banks))
    return [bank[turn] for turn in range(turns) for bank in banks if turn < len(bank)][:places]
