"""A short text from a language model in training, for a person to read.

Not `decoding.sampling`, whose user features (penalties, stop strings, batches) would become code that training depends
on: each change would retrain every model. Draws come from a separate generator, seeded the same for each sample, so
texts differ by the weights alone and training is unchanged to the bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

    from lexmill.tokenizers import Tokenizer
    from lexmill.training.watching import Sampler

_TOKENS = 64
_TEMPERATURE = 0.8


def sampler(tokenizer: Tokenizer, prompt: str, tokens: int = _TOKENS) -> Sampler:
    """Return a function that continues `prompt` with a causal language model, by `tokens` at most and to its context.

    Args:
        tokenizer: the model's.
        prompt: only the end of a long one is read; an empty one is the end token, after which a document begins.
    """
    ids = tokenizer.encode(prompt) or [tokenizer.eos_id]

    def sample(module: nn.Module) -> str:
        return prompt + tokenizer.decode(_draw(module, ids, tokens, tokenizer))

    return sample


def _draw(module: Any, prompt: list[int], tokens: int, tokenizer: Tokenizer) -> list[int]:
    import torch

    device = next(module.parameters()).device
    generator = torch.Generator().manual_seed(0)
    begun = prompt[-max(1, module.context // 2) :]
    drawn: list[int] = []
    # Not inference mode: a network may keep a table made here and need it for gradients later.
    with torch.no_grad():
        cache, given = module.new_cache(1), begun
        while len(drawn) < min(tokens, module.context - len(begun)):
            logits = module(torch.tensor([given], device=device), cache)[0, -1].float().cpu()  # (V,)
            logits[list(tokenizer.never_written)] = -torch.inf
            token = int(torch.multinomial((logits / _TEMPERATURE).softmax(0), 1, generator=generator))
            if token == tokenizer.eos_id:
                break
            drawn.append(token)
            given = [token]
    return drawn
