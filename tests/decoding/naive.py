"""Slow obvious twins of the searches, and tiny models to search."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from lexmill.decoding.settings import BeamSearch
from lexmill.models.common.init import Xavier, initialize
from lexmill.models.transformer.model import Transformer
from lexmill.models.transformer.shape import Shape as TransformerShape
from lexmill.tokenizers.tokenizer import BOS, EOS, NEVER_WRITTEN

V = 11  # 5 special tokens and 6 words
POSITIONS = 24


def tiny(seed: int = 0, scale: float = 3.0, positions: int = POSITIONS, vocab: int = V) -> Transformer:
    """A random translator with opinions: its logits spread by `scale`."""
    torch.manual_seed(seed)
    shape = TransformerShape(1, 2, 2, 16, 24, dropout=0.0, norm="pre", max_positions=positions)
    module = Transformer(shape, vocab)
    initialize(module, Xavier(embedding_std=0))
    with torch.no_grad():
        module.decoder_norm.weight.mul_(scale)
    return module.eval()


def sentences(lengths: list[int], seed: int = 1, vocab: int = V) -> list[tuple[int, ...]]:
    torch.manual_seed(seed)
    return [tuple(torch.randint(5, vocab, (n,)).tolist()) for n in lengths]


@torch.no_grad()
def next_log_probabilities(module: nn.Module, source: tuple[int, ...], written: tuple[int, ...]) -> Tensor:
    """(V,) for the token after `written`, from the whole forward pass of this one sentence."""
    ids = torch.tensor([[*source, EOS]])
    logits = module(ids, torch.ones_like(ids, dtype=torch.bool), torch.tensor([[BOS, *written]]))
    return logits[0, -1].double().log_softmax(0)


def may_follow(
    source: tuple[int, ...], written: tuple[int, ...], search: BeamSearch, start: tuple[int, ...]
) -> set[int]:
    """The tokens that may come next."""
    longest = max(min(int(search.max_length_ratio * len(source)) + search.max_length_extra, POSITIONS - 1), len(start))
    shortest = min(int(search.min_length_ratio * len(source)), longest)
    if len(written) < len(start):
        return {start[len(written)]}
    if len(written) == longest:
        return {EOS}
    words = {token for token in range(5, V) if not repeats((*written, token), search.no_repeat_ngram)}
    return words if words and len(written) < shortest else {*words, EOS}


def repeats(tokens: tuple[int, ...], size: int) -> bool:
    """Whether the last n-gram of this size came before."""
    grams = [tokens[i : i + size] for i in range(len(tokens) - size + 1)] if size else []
    return bool(grams) and grams[-1] in grams[:-1]


def value(log_probability: float, length: int, search: BeamSearch) -> float:
    """What hypotheses are ranked by."""
    a = search.length_penalty
    return {
        "gnmt": log_probability / ((5 + length) / 6) ** a,
        "average": log_probability / length**a,
        "word_reward": log_probability + length * a,
    }[search.ranking]


@torch.no_grad()
def covered(module: nn.Module, source: tuple[int, ...], written: tuple[int, ...]) -> float:
    """The coverage of one source, summed token by token."""
    ids = torch.tensor([[*source, EOS]])
    weights = module.alignment(ids, torch.ones_like(ids, dtype=torch.bool), torch.tensor([[BOS, *written]]))[0]
    total = 0.0
    for i in range(len(source)):
        total += math.log(min(sum(float(row[i]) for row in weights), 1.0))
    return total


def naive_beam(
    module: nn.Module, source: tuple[int, ...], search: BeamSearch, n_best: int = 1, start: tuple[int, ...] = ()
) -> list[tuple[tuple[int, ...], float]]:
    """(tokens, score): one sentence, no cache, no early stop; runs until every place is finished."""
    live: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    finished: list[tuple[float, tuple[int, ...]]] = []
    while live:
        candidates = []
        for place, (total, written) in enumerate(live):
            step = next_log_probabilities(module, source, written).tolist()
            candidates += [
                (-(total + step[token]), place, token) for token in may_follow(source, written, search, start)
            ]
        candidates.sort()
        places, still = search.beam_size - len(finished), []
        for negative, place, token in candidates[:places]:
            written = live[place][1]
            if token == EOS:
                score = value(-negative, len(written) + 1, search)
                finished.append((score + search.coverage_penalty * covered(module, source, written), written))
            else:
                still.append((-negative, (*written, token)))
        live = still
    finished.sort(key=lambda one: -one[0])
    return [(written, score) for score, written in finished[:n_best]]


def greedy(module: nn.Module, source: tuple[int, ...], longest: int) -> tuple[int, ...]:
    written: tuple[int, ...] = ()
    while len(written) < longest:
        values = next_log_probabilities(module, source, written)
        values[list(NEVER_WRITTEN)] = -torch.inf
        token = int(values.argmax())
        if token == EOS:
            break
        written = (*written, token)
    return written


def every_translation(longest: int) -> list[tuple[int, ...]]:
    """All rows of words up to a length."""
    rows: list[tuple[int, ...]] = [()]
    for row in rows:
        if len(row) < longest:
            rows.extend((*row, word) for word in range(5, V))
    return rows
