"""Generate text with a language model, token by token: greedy or sampled (see `Sampling`), whole or as a stream.

Prompts of unequal length share a batch without padding: the batch starts at the shortest prompt's end, and the further
tokens of a longer prompt replace sampled ones step by step. So each prompt gets the same text as alone: its random
numbers depend on the seed (and on how often the same prompt came before), not on the other prompts.

With a cache a token costs one position. A network with a window rebuilds its cache from the second half when the window
is full; one with an unlimited state (`unlimited`) keeps it.

Shape letters: B unfinished prompts, V vocabulary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from lexmill.decoding.choosing import next_tokens, penalise
from lexmill.decoding.numbers import BLOCK, Numbers
from lexmill.decoding.settings import Sampling
from lexmill.decoding.text import GrowingText, text_behind
from lexmill.models.common.window import window_start
from lexmill.tokenizers import Tokenizer
from lexmill.tokenizers.tokenizer import EOS, NEVER_WRITTEN

_BATCH = 16  # prompts in a batch


class LanguageModel(Protocol):
    """The interface of a network for generation; its cache has `reorder(rows)`.

    Optional: `unlimited` (true: no window bounds its input) and `next_logits(tokens, cache)`, the (B, V) logits after
    the last token alone, faster than a forward pass over all positions.
    """

    @property
    def context(self) -> int: ...
    def new_cache(self, batch: int) -> Any: ...
    def __call__(self, tokens: Tensor, cache: Any = None) -> Tensor: ...
    def parameters(self) -> Any: ...


@torch.inference_mode()
def draw(
    module: LanguageModel,
    prompts: Sequence[Sequence[int]],
    sampling: Sampling,
    *,
    eos: int = EOS,
    never_written: Sequence[int] = NEVER_WRITTEN,
    ended: set[int] | None = None,
    repeats: Sequence[int] | None = None,
) -> Iterator[list[tuple[int, int]]]:
    """Yield the new tokens of each step, as (prompt's index, token); a prompt ends before the end token.

    Args:
        prompts: at least one token each.
        sampling: `stop` is ignored, because it applies to text.
        eos, never_written: the end token, and the tokens that are never chosen.
        ended: indices of prompts that need no more tokens; the caller may add to it between steps.
        repeats: how often each prompt came before; counted here by default.

    Raises:
        UserError: the model's output is not finite.
    """
    if sampling.max_tokens == 0 or not prompts:
        return
    device = next(module.parameters()).device
    next_logits, unlimited = _next_logits(module), bool(getattr(module, "unlimited", False))
    never = torch.tensor(never_written, dtype=torch.int64, device=device)
    going = list(range(len(prompts)))  # (B,) indices
    lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)
    length, longest = int(lengths.min()), int(lengths.max())
    tokens = torch.zeros(len(prompts), longest + min(sampling.max_tokens, BLOCK), dtype=torch.int64, device=device)
    for row, prompt in enumerate(prompts):
        tokens[row, : len(prompt)] = torch.tensor(prompt, device=device)
    repeats = _repeats(prompts) if repeats is None else repeats
    numbers = Numbers([f"{sampling.seed} {repeat}" for repeat in repeats], sampling, device)
    start, cache = -1, None
    while going:
        window = 0 if unlimited else window_start(length, module.context)
        if cache is None or window != start:
            start, cache = window, module.new_cache(len(going))
            new = tokens[:, start:length]
        else:
            new = tokens[:, length - 1 : length]
        logits = next_logits(new, cache).float()  # (B, V)
        if sampling.repetition_penalty != 1:
            penalise(logits, tokens[:, :length], sampling.repetition_penalty, eos)
        logits.index_fill_(1, never, -torch.inf)
        chosen = next_tokens(logits, numbers.of(length - lengths), sampling)  # (B,)
        if length == tokens.shape[1]:
            tokens = torch.cat([tokens, torch.zeros_like(tokens[:, :1]).expand(-1, BLOCK)], dim=1)
        writes = None
        if length < longest:
            writes = lengths <= length
            chosen = torch.where(writes, chosen, tokens[:, length])
        tokens[:, length] = chosen
        length += 1
        found = chosen.tolist()
        rows = range(len(going)) if writes is None else [row for row, own in enumerate(writes.tolist()) if own]
        yield [(going[row], found[row]) for row in rows if found[row] != eos]
        full = {row for row in rows if length - len(prompts[going[row]]) >= sampling.max_tokens}
        done = full | {row for row in rows if found[row] == eos or (ended and going[row] in ended)}
        if done:
            stays = [row for row in range(len(going)) if row not in done]
            going = [going[row] for row in stays]
            if going:
                kept = torch.tensor(stays, dtype=torch.int64, device=device)
                cache.reorder(kept)
                tokens, lengths = tokens[kept], lengths[kept]
                numbers.keep(stays)


def _next_logits(module: LanguageModel) -> Callable[[Tensor, Any], Tensor]:
    """The network's own `next_logits`, or a forward pass.

    Where a process holds only a part of the weights, a forward pass must gather the others.
    """
    own: Callable[[Tensor, Any], Tensor] | None = getattr(module, "next_logits", None)
    if own is not None and all(type(parameter) is nn.Parameter for parameter in module.parameters()):
        return own
    return lambda tokens, cache: module(tokens, cache)[:, -1].clone()


def _repeats(prompts: Sequence[Sequence[int]]) -> list[int]:
    """How often the same prompt came before each."""
    seen: Counter[tuple[int, ...]] = Counter()
    found = []
    for prompt in map(tuple, prompts):
        found.append(seen[prompt])
        seen[prompt] += 1
    return found


def continue_tokens(
    module: LanguageModel,
    prompts: Sequence[Sequence[int]],
    sampling: Sampling,
    *,
    eos: int = EOS,
    never_written: Sequence[int] = NEVER_WRITTEN,
) -> list[list[int]]:
    """Return the new tokens after each prompt (at least one token long), without the end token; see `draw`."""
    return _collect(draw(module, prompts, sampling, eos=eos, never_written=never_written), len(prompts))


def _collect(steps: Iterator[list[tuple[int, int]]], prompts: int) -> list[list[int]]:
    made: list[list[int]] = [[] for _ in range(prompts)]
    for step in steps:
        for place, token in step:
            made[place].append(token)
    return made


def generate(module: nn.Module, tokenizer: Tokenizer, prompts: Sequence[str], sampling: Sampling) -> list[str]:
    """Return the model's continuation of each prompt.

    A text starts after an end token, like each document of the training data, and stops before the next one or before
    the first of `sampling.stop`.

    Args:
        module: a language model in eval mode.

    Raises:
        UserErrors: for settings out of bounds.
        UserError: for a prompt that is not Unicode, or a model whose output is not finite.
    """
    sampling.check()
    starts = _starts(tokenizer, prompts)
    repeats = _repeats(starts)
    order = sorted(range(len(starts)), key=lambda i: len(starts[i]))  # a batch reads few prompt tokens step by step
    texts = [""] * len(starts)
    for first in range(0, len(order), _BATCH):
        places = order[first : first + _BATCH]
        made = _texts(module, tokenizer, [starts[i] for i in places], sampling, [repeats[i] for i in places])
        for i, text in zip(places, made, strict=True):
            texts[i] = text
    return texts


def _texts(
    module: nn.Module, tokenizer: Tokenizer, starts: list[list[int]], sampling: Sampling, repeats: list[int]
) -> list[str]:
    """One batch of `generate`."""
    ended: set[int] = set()
    model, eos, never = cast(LanguageModel, module), tokenizer.eos_id, tokenizer.never_written
    steps = draw(model, starts, sampling, eos=eos, never_written=never, ended=ended, repeats=repeats)
    if sampling.stop:
        growing = [GrowingText(tokenizer, start, sampling.stop) for start in starts]
        pieces: list[list[str]] = [[] for _ in starts]
        for step in steps:
            for place, token in step:
                pieces[place].append(growing[place].add(token))
                if growing[place].stopped:
                    ended.add(place)
        return ["".join([*own, text.finish()]) for own, text in zip(pieces, growing, strict=True)]
    made = _collect(steps, len(starts))
    return [text_behind(tokenizer, start, new) for start, new in zip(starts, made, strict=True)]


def stream(module: nn.Module, tokenizer: Tokenizer, prompt: str, sampling: Sampling) -> Iterator[str]:
    """Yield the text of `generate` for one prompt in pieces, as it is generated."""
    sampling.check()
    (start,) = _starts(tokenizer, [prompt])
    return streamed(module, tokenizer, start, sampling)


def streamed(module: nn.Module, tokenizer: Tokenizer, start: list[int], sampling: Sampling) -> Iterator[str]:
    """Yield the text after some tokens in pieces, as it is generated; `sampling` is checked by the caller."""
    text = GrowingText(tokenizer, start, sampling.stop)
    ended: set[int] = set()
    model, eos, never = cast(LanguageModel, module), tokenizer.eos_id, tokenizer.never_written
    for step in draw(model, [start], sampling, eos=eos, never_written=never, ended=ended):
        for place, token in step:
            if piece := text.add(token):
                yield piece
            if text.stopped:
                ended.add(place)
    if piece := text.finish():
        yield piece


def _starts(tokenizer: Tokenizer, prompts: Sequence[str]) -> list[list[int]]:
    return [[tokenizer.eos_id, *ids] for ids in tokenizer.encode_batch(prompts)] if prompts else []
