"""How far back a prediction depends on what it reads: the gradient of its loss by each earlier input.

The norm of d nats / d embedding at each distance from the prediction, the mean over windows of the test text. In
recurrent networks it shows vanishing and exploding gradients, in windows of attention where they end.

Shape letters: B windows, T context, D width.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lexmill.tokenizers import Tokenizer

_MOST = 4096  # tokens in all windows


def windows(records: Iterable[Mapping[str, Any]], tokenizer: Tokenizer, context: int) -> NDArray[np.int64]:
    """Return windows of context + 1 tokens from texts, in order, (B, T + 1); of shorter texts, of the longest one's."""
    wanted, found = max(1, _MOST // context), list[list[int]]()
    longest: list[int] = []
    for record in records:
        ids = [tokenizer.eos_id, *tokenizer.encode(record["text"])]
        longest = max(longest, ids, key=len)
        found += [ids[at : at + context + 1] for at in range(0, len(ids) - context, context + 1)]
        if len(found) >= wanted:
            break
    return np.array(found[:wanted] or [longest[: context + 1]], dtype=np.int64)


def gradient_norms(module: Any, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the norm by distance from the last input, (T,), from windows (B, T + 1); none without two tokens.

    Args:
        module: a `CausalModel` in eval mode.
    """
    import torch
    from torch.nn import functional

    if tokens.shape[1] < 2:
        return np.empty(0)
    device = next(module.parameters()).device
    inputs: list[torch.Tensor] = []

    def watch(_: Any, given: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
        inputs.append(given[0].detach().requires_grad_())
        return (inputs[-1],)

    handle = module.dropout.register_forward_pre_hook(watch)
    try:
        with torch.enable_grad():
            block = torch.from_numpy(tokens).to(device)
            logits = module.logits(module.hidden(block[:, :-1])[:, -1])  # (B, V)
            nats = functional.cross_entropy(logits.float(), block[:, -1], reduction="sum")
            (gradient,) = torch.autograd.grad(nats, inputs)  # (B, T, D)
    finally:
        handle.remove()
    norms: NDArray[np.float64] = gradient.double().norm(dim=2).mean(0).flip(0).cpu().numpy()
    return norms
