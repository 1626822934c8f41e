"""What a network with a head on whole texts computes for each text."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from lexmill.data.texts import pad
from lexmill.decoding.batching import by_length


def outputs(module: nn.Module, encoded: Sequence[Sequence[int]], batch_tokens: int) -> Tensor:
    """Return the outputs of each text, (texts, outputs) float64 in main memory; of no texts (0, 0).

    Texts of similar length run together; no output depends on the other texts.

    Args:
        module: `module(tokens (B, T), mask (B, T))` returns (B, outputs); in eval mode.
        encoded: the tokens of each text.
        batch_tokens: tokens in one forward pass, padding included.
    """
    if not encoded:
        return torch.empty(0, 0, dtype=torch.float64)
    device = next(tensor.device for tensor in (*module.parameters(), *module.buffers()))
    groups = list(by_length([len(ids) for ids in encoded], batch_tokens))
    found = []
    for group in groups:
        arrays = pad([encoded[i] for i in group])  # (B, T) each; padding is masked: any id does
        with torch.inference_mode():
            found.append(module(*(torch.from_numpy(array).to(device) for array in arrays)).double().cpu())
    order = torch.tensor([i for group in groups for i in group])
    return torch.cat(found)[order.argsort()]
