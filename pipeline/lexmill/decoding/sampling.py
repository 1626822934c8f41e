"""Text from a language model: greedy, or drawn with temperature, top-k and top-p (Holtzman et al. 2020).

Prompts of unequal length share a batch without padding: the batch starts at the shortest prompt's end, and a longer
prompt's tokens are given to it step by step in place of drawn ones. So each prompt gets what it would get alone: its
random numbers depend on the seed (and on how often the same prompt came before), not on its neighbours.

With a cache a token costs one position. When the context is full, the cache is made again from its second half.

Shape letters: B prompts still going, V vocabulary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from lexmill import storage
from lexmill.errors import UserError, UserErrors
from lexmill.tokenizers import Tokenizer
from lexmill.tokenizers.tokenizer import BOS, EOS, MASK, PAD, UNK

NEVER_WRITTEN = (PAD, UNK, BOS, MASK)


class LanguageModel(Protocol):
    """What generation needs of a network; its cache has `reorder(rows)`."""

    @property
    def context(self) -> int: ...
    def new_cache(self, batch: int) -> Any: ...
    def __call__(self, tokens: Tensor, cache: Any = None) -> Tensor: ...
    def parameters(self) -> Any: ...


def next_tokens(logits: Tensor, draws: Tensor, temperature: float, top_k: int, top_p: float) -> Tensor:
    """Choose one token of each row: (B, V) float logits and (B,) numbers in [0, 1) -> (B,) int64.

    The tokens are sorted by probability (equal ones by id), cut to the `top_k` first and to the fewest first
    whose probabilities reach `top_p`, and the one is taken in whose share of what is left the number falls.
    Temperature 0: the most probable one.
    """
    if temperature == 0:
        return logits.argmax(dim=1)
    ordered, index = logits.double().sort(dim=1, descending=True, stable=True)
    if top_k:
        ordered, index = ordered[:, :top_k], index[:, :top_k]
    probability = (ordered / temperature).softmax(dim=1)
    reached = probability.cumsum(dim=1)
    before = reached - probability  # what the more probable ones have: below top_p, so the token is needed
    probability = probability.masked_fill((before >= top_p) & (before > 0), 0.0)
    reached = probability.cumsum(dim=1)
    place = torch.searchsorted(reached, draws[:, None] * reached[:, -1:], right=True)
    last = (probability > 0).sum(dim=1, keepdim=True) - 1
    return index.gather(1, torch.minimum(place, last))[:, 0]


def _faults(max_tokens: int, temperature: float, top_k: int, top_p: float) -> list[str]:
    found = []
    if max_tokens < 0:
        found.append(f"max_tokens: {max_tokens} must be at least 0")
    if not 0 <= temperature < float("inf"):
        found.append(f"temperature: {temperature} must be a number from 0 (greedy) up")
    if top_k < 0:
        found.append(f"top_k: {top_k} must be at least 0 (0: no bound)")
    if not 0 < top_p <= 1:
        found.append(f"top_p: {top_p} must be above 0 and at most 1 (1: no bound)")
    return found


def window_start(length: int, context: int) -> int:
    """Where the context of the token after `length` tokens starts: 0 while all fit, then in steps of half a context."""
    half = max(1, context // 2)
    return 0 if length <= context else -((context - length) // half) * half


@torch.inference_mode()
def continue_tokens(
    module: LanguageModel,
    prompts: Sequence[Sequence[int]],
    max_tokens: int,
    *,
    temperature: float,
    top_k: int,
    top_p: float,
    seed: int,
) -> list[list[int]]:
    """New tokens after each prompt (at least one token long): at most `max_tokens`, ending before the end token."""
    device = next(module.parameters()).device
    made: list[list[int]] = [[] for _ in prompts]
    if max_tokens == 0 or not prompts:
        return made
    sequences = [list(prompt) for prompt in prompts]
    generators = _generators(prompts, seed)
    going = list(range(len(prompts)))
    length = min(len(prompt) for prompt in prompts)
    start, cache, new = -1, None, 0
    while going:
        if cache is None or window_start(length, module.context) != start:
            start = window_start(length, module.context)
            cache, new = module.new_cache(len(going)), length - start
        tail = torch.tensor([sequences[i][length - new : length] for i in going], device=device)
        logits = module(tail, cache)[:, -1].float()  # (B, V)
        if not bool(logits.isfinite().all()):
            raise UserError("the model's output is not finite: its weights are broken; train it again")
        logits[:, NEVER_WRITTEN] = -torch.inf
        writers = [row for row, i in enumerate(going) if len(prompts[i]) <= length]
        if writers:
            draws = [torch.rand((), generator=generators[going[row]], dtype=torch.float64).item() for row in writers]
            rows = torch.tensor(writers, device=device)
            numbers = torch.tensor(draws, dtype=torch.float64, device=device)
            chosen = next_tokens(logits[rows], numbers, temperature, top_k, top_p).tolist()
            for row, token in zip(writers, chosen, strict=True):
                sequences[going[row]].append(token)
                if token != EOS:
                    made[going[row]].append(token)
        length, new = length + 1, 1
        stays = [
            row
            for row, i in enumerate(going)
            if len(prompts[i]) >= length or (sequences[i][-1] != EOS and len(made[i]) < max_tokens)
        ]
        if len(stays) < len(going):
            cache.reorder(torch.tensor(stays, dtype=torch.int64, device=device))
            going = [going[row] for row in stays]
    return made


def _generators(prompts: Sequence[Sequence[int]], seed: int) -> list[torch.Generator]:
    """One stream of random numbers for each prompt; prompts that come twice get two."""
    seen: Counter[tuple[int, ...]] = Counter()
    found = []
    for prompt in map(tuple, prompts):
        number = int(storage.sha256_bytes(f"{seed} {seen[prompt]}".encode())[:15], 16)
        found.append(torch.Generator().manual_seed(number))
        seen[prompt] += 1
    return found


def generate(
    module: nn.Module,
    tokenizer: Tokenizer,
    prompts: Sequence[str],
    max_tokens: int,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
) -> list[str]:
    """What the model writes after each prompt, without the prompt.

    A text starts after an end token, as each document of the training data does, and stops before the next one.

    Args:
        module: a language model in eval mode.
        max_tokens: most new tokens.
        temperature: divides the logits; 0: always the most probable token.
        top_k: only the k most probable tokens; 0: all.
        top_p: only the fewest tokens that reach this probability; 1: all.
        seed: of the random numbers.

    Raises:
        UserErrors: for numbers out of bounds.
        UserError: for a prompt that is not Unicode.
    """
    if faults := _faults(max_tokens, temperature, top_k, top_p):
        raise UserErrors(faults)
    starts = [[EOS, *ids] for ids in tokenizer.encode_batch(prompts)] if prompts else []
    language_model = cast(LanguageModel, module)
    made = continue_tokens(
        language_model, starts, max_tokens, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed
    )
    texts = []
    for start, new in zip(starts, made, strict=True):
        # Decoded behind its prompt: a token's text may depend on what stands before it.
        before, whole = tokenizer.decode(start), tokenizer.decode([*start, *new])
        texts.append(whole[len(before) :] if whole.startswith(before) else tokenizer.decode(new))
    return texts
