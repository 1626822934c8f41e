"""How probable a translator finds given translations: forced decoding.

Shape letters: B pairs, S source length, T target length, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from lexmill.decoding.batching import by_length, pad_sources
from lexmill.tokenizers.tokenizer import BOS


@torch.inference_mode()
def score(
    module: nn.Module,
    source: Sequence[Sequence[int]],
    target: Sequence[Sequence[int]],
    batch_tokens: int = 16384,
) -> list[float]:
    """log P(target | source) of each pair, in nats, the end token included: `Hypothesis.log_probability`.

    Args:
        module: a translator in eval mode.
        source, target: token ids without begin and end tokens.
        batch_tokens: tokens of the longer side scored at once, padding included.
    """
    device = next(module.parameters()).device
    found = [0.0] * len(source)
    lengths = [max(len(s), len(t)) + 1 for s, t in zip(source, target, strict=True)]
    for group in by_length(lengths, batch_tokens):
        sources, source_mask = pad_sources([source[i] for i in group], device)
        target_out, target_mask = pad_sources([target[i] for i in group], device)
        begin = torch.full_like(target_out[:, :1], BOS)
        logits = module(sources, source_mask, torch.cat([begin, target_out[:, :-1]], dim=1)).float()  # (B, T, V)
        chosen = logits.log_softmax(dim=-1).gather(2, target_out[:, :, None])[:, :, 0]  # (B, T)
        sums = chosen.double().masked_fill(~target_mask, 0.0).sum(1)
        for i, value in zip(group, sums.tolist(), strict=True):
            found[i] = value
    return found
