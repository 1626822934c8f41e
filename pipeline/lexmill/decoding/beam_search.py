"""Beam search for encoder-decoders: cached, batched over sentences, with an exact stopping rule.

A sentence has `beam_size` places. At each step every live hypothesis is continued by every token, and the best
continuations by log-probability fill the free places: one that ends with the end token is finished, keeps its place and
is not continued. Finished ones are ranked by `ranked`, the end token counted in the length. A sentence is done when no
place is live, or when the worst of the `n_best` finished is at least as good as any live one can become. log P is at
most 0 and only falls, and no strength is negative; so for a given log P each ranking grows with the length: a quotient
of a number below 0 by one that grows, or a sum with a reward that grows. The bound is therefore the present log P of
the best live one at the maximum length, since a coverage only lowers a score. One place: greedy search.

So more of the same search is a longer list: the n best are the first of the n + 1 best.

Equal scores are ordered by place and token, so the result is unique and independent of the other sentences of the
batch. Cost: a decoder step over unfinished sentences * beam_size rows for each position.

Shape letters: N unfinished sentences, K places, C best continuations of each place, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from lexmill.base.errors import UserError
from lexmill.decoding.coverage import coverage
from lexmill.decoding.limits import Limits, exclude, limits
from lexmill.decoding.settings import BeamSearch
from lexmill.tokenizers.tokenizer import TRAINED, SpecialIds


class DecoderCache(Protocol):
    """The state of a decoder between steps."""

    def reorder(self, rows: Tensor, sources: Tensor | None = None) -> None: ...


class EncoderDecoder(Protocol):
    """The interface of a network for the search."""

    @property
    def max_positions(self) -> int: ...
    def encode(self, source: Tensor, source_mask: Tensor) -> Tensor: ...
    def new_cache(self, memory: Tensor, source_mask: Tensor) -> DecoderCache: ...
    def decode(
        self, target_in: Tensor, memory: Tensor, source_mask: Tensor, cache: DecoderCache | None = None
    ) -> Tensor: ...
    def alignment(self, source: Tensor, source_mask: Tensor, target_in: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Hypothesis:
    """A translation.

    Attributes:
        tokens: without begin and end token.
        log_probability: of the tokens and the end token, in nats, as in forced decoding.
        score: log_probability under the length penalty, with that for what was not covered.
    """

    tokens: tuple[int, ...]
    log_probability: float
    score: float


def length_penalty(length: int, alpha: float) -> float:
    """((5 + length) / 6) ** alpha; length in tokens, the end token included (Wu et al. 2016, equation 14)."""
    return float(((5 + length) / 6) ** alpha)


def ranked(log_probability: float, length: int, search: BeamSearch) -> float:
    """Return the score of a hypothesis; see `BeamSearch`.

    Args:
        log_probability: in nats.
        length: in tokens, the end token included.
    """
    if search.ranking == "word_reward":
        return log_probability + search.length_penalty * length
    if search.ranking == "average":
        return log_probability / float(length**search.length_penalty)
    return log_probability / length_penalty(length, search.length_penalty)


@dataclass
class Sentence:
    """An unfinished sentence: its index in the input, the limits of a translation, finished hypotheses."""

    place: int
    limits: Limits
    finished: list[Hypothesis] = field(default_factory=list)

    def finish(self, tokens: tuple[int, ...], log_probability: float, covered: float, search: BeamSearch) -> None:
        score = ranked(log_probability, len(tokens) + 1, search) + search.coverage_penalty * covered
        self.finished.append(Hypothesis(tokens, log_probability, score))

    def done(self, best_live: float, n_best: int, search: BeamSearch) -> bool:
        """Whether no live hypothesis can enter the `n_best`; `best_live` is -inf when none is live."""
        if best_live == -torch.inf:
            return True
        if len(self.finished) < n_best:
            return False
        bound = ranked(best_live, self.limits.longest + 1, search)
        return sorted((one.score for one in self.finished), reverse=True)[n_best - 1] >= bound

    def best(self, n_best: int) -> list[Hypothesis]:
        """The best finished hypotheses; of equal scores the one finished first."""
        return sorted(self.finished, key=lambda one: -one.score)[:n_best]


@torch.inference_mode()
def beam_search(
    module: EncoderDecoder,
    source: Tensor,
    source_mask: Tensor,
    search: BeamSearch,
    n_best: int = 1,
    *,
    prefixes: Sequence[Sequence[int]] | None = None,
    special: SpecialIds = TRAINED,
) -> list[list[Hypothesis]]:
    """Return the `n_best` translations of each source, best first; fewer, but at least one, if no others are possible.

    Args:
        module: an encoder-decoder in eval mode.
        source, source_mask: (B, S) int64 and bool; each row ends with the end token, then padding.
        search: the search's settings.
        n_best: at most `search.beam_size`.
        prefixes: the first tokens of each translation; their log-probability counts.
        special: the tokenizer's.

    Raises:
        UserError: the model's output is not finite, or a prefix does not fit.
    """
    if not 1 <= n_best <= search.beam_size:
        raise ValueError(f"n_best is {n_best}; it must be from 1 to beam_size ({search.beam_size})")
    found: list[list[Hypothesis]] = [[] for _ in range(source.size(0))]
    if source.size(0) == 0:
        return found
    bounds = limits_of(module, source_mask, search, prefixes)
    live = [Sentence(i, one) for i, one in enumerate(bounds)]
    beams, device, mask = search.beam_size, source.device, source_mask
    memory = module.encode(source, source_mask)
    cache = module.new_cache(memory, source_mask)
    tokens = torch.full((len(live), beams, 1), special.bos, device=device)  # (N, K, time)
    scores = torch.full((len(live), beams), -torch.inf, dtype=torch.float64, device=device)  # (N, K)
    scores[:, 0] = 0.0
    while True:
        logits = module.decode(tokens[:, :, -1].reshape(-1, 1), memory, source_mask, cache)[:, -1]  # (N K, V)
        logits = logits.float()
        norm = log_norm(logits)
        rows_of = [one.limits for one in live for _ in range(beams)]
        exclude(logits, tokens[:, :, 1:].flatten(0, 1), rows_of, search.no_repeat_ngram, special)
        places = torch.tensor([beams - len(one.finished) for one in live], device=device)
        total, parent, token = _choose(logits, norm, scores, places)  # (N, K) each
        ends = (token == special.eos) & (total > -torch.inf)
        ended = ends.nonzero().tolist()
        written = [tuple(tokens[row, parent[row, place], 1:].tolist()) for row, place in ended]
        covered = [0.0] * len(ended)
        if search.coverage_penalty and ended:
            of = torch.tensor([live[row].place for row, _ in ended], device=device)
            covered = coverage(module, source[of], mask[of], written, special)
        for (row, place), words, share in zip(ended, written, covered, strict=True):
            live[row].finish(words, float(total[row, place]), share, search)
        total, order = total.masked_fill(ends, -torch.inf).sort(dim=1, descending=True, stable=True)  # live ones first
        parent, token = parent.gather(1, order), token.gather(1, order)
        best_live = total[:, 0].tolist()
        stays = [i for i, one in enumerate(live) if not one.done(best_live[i], n_best, search)]
        for one in (one for i, one in enumerate(live) if i not in set(stays)):
            found[one.place] = one.best(n_best)
        if not stays:
            break
        live = [live[i] for i in stays]
        kept = torch.tensor(stays, dtype=torch.int64, device=device)
        rows = (kept[:, None] * beams + parent[kept]).flatten()
        if not torch.equal(rows, torch.arange(tokens.size(0) * beams, device=device)):
            cache.reorder(rows, kept if len(kept) < tokens.size(0) else None)
            source_mask, memory = source_mask[kept], memory[kept]
        tokens = torch.cat([tokens.flatten(0, 1)[rows].view(len(kept), beams, -1), token[kept][:, :, None]], dim=2)
        scores = total[kept]
    return found


def limits_of(
    module: EncoderDecoder, source_mask: Tensor, search: BeamSearch, prefixes: Sequence[Sequence[int]] | None
) -> list[Limits]:
    """Return the limits of each source of a batch."""
    lengths = (source_mask.sum(1) - 1).clamp(min=0).tolist()
    starts = [()] * len(lengths) if prefixes is None else prefixes
    return [limits(n, search, module.max_positions, start) for n, start in zip(lengths, starts, strict=True)]


def log_norm(logits: Tensor) -> Tensor:
    """Return what is subtracted from logits (R, V) for log-probabilities, (R, 1).

    It covers the whole vocabulary, as in forced decoding; tokens are excluded afterwards.

    Raises:
        UserError: the model's output is not finite.
    """
    norm = logits.logsumexp(dim=1, keepdim=True)
    if not bool(norm.isfinite().all()):
        raise UserError("the model's output is not finite: its weights are broken; train it again")
    return norm


def _choose(logits: Tensor, norm: Tensor, scores: Tensor, places: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The best continuations of each sentence: total log-probability (-inf: none), parent place and token, (N, K) each.

    Args:
        logits: (N K, V) of the next token; -inf for excluded tokens.
        norm: (N K, 1), see `log_norm`.
        scores: (N, K) log-probability of each place so far; -inf where none is live.
        places: (N,) the number of free places.
    """
    n, beams = scores.shape
    best, token = largest(logits, beams)  # (N K, C): at most K continuations of one place can be chosen
    total = (best - norm).double().view(n, beams, -1) + scores[:, :, None]
    total, order = total.flatten(1).sort(dim=1, descending=True, stable=True)  # (N, K C)
    total, order = total[:, :beams], order[:, :beams]
    beyond = torch.arange(beams, device=scores.device) >= places[:, None]
    return total.masked_fill(beyond, -torch.inf), order // best.size(1), token.view(n, -1).gather(1, order)


def largest(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of each row of (B, N) and their indices, (B, K) each with K = min(count, N).

    In descending order; of equal values the one with the lower index is kept and comes first, while `torch.topk` picks
    any of them, which may change a search's answer from run to run. Shapes: B rows, N candidates, K kept.
    """
    size = values.size(1)
    count = min(count, size)
    if count == 1:
        best = values.argmax(dim=1, keepdim=True)  # the first of equal ones
        return values.gather(1, best), best
    found, index = values.topk(min(count + 1, size), dim=1)
    if size > count:
        # Where the first dropped value equals the last kept one, topk chose arbitrarily.
        tied = (found[:, count - 1] == found[:, count]).nonzero().flatten()
        found, index = found[:, :count], index[:, :count]
        if len(tied):
            found, index = found.clone(), index.clone()
            exact = values[tied].sort(dim=1, descending=True, stable=True)
            found[tied], index[tied] = exact.values[:, :count], exact.indices[:, :count]
    # Order equal values by index: sort by index, then stably by value.
    index, order = index.sort(dim=1)
    found, order = found.gather(1, order).sort(dim=1, descending=True, stable=True)
    return found, index.gather(1, order)
