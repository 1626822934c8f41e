"""What a network with a head on whole texts computes for each text."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lexmill.data.texts import Read, pad
from lexmill.decoding.batching import by_length


def outputs(module: nn.Module, texts: Read, batch_tokens: int) -> Tensor:
    """Return the outputs of each text, (texts, outputs) float64 in main memory; of no texts (0, 0).

    Those of a text in windows are their mean. Rows of similar length run together; no output depends on the other
    texts.

    Args:
        module: `module(tokens (B, T), mask (B, T))` returns (B, outputs); in eval mode.
        batch_tokens: tokens in one forward pass, padding included.
    """
    if not texts.rows:
        return torch.empty(0, 0, dtype=torch.float64)
    device = next(tensor.device for tensor in (*module.parameters(), *module.buffers()))
    groups = list(by_length([len(ids) for ids in texts.rows], batch_tokens))
    found = []
    for group in groups:
        arrays = pad([texts.rows[i] for i in group])  # (B, T) each; padding is masked: any id does
        with torch.inference_mode():
            found.append(module(*(torch.from_numpy(array).to(device) for array in arrays)).double().cpu())
    order = torch.tensor([i for group in groups for i in group])
    return means(torch.cat(found)[order.argsort()], torch.tensor(texts.counts))


def means(values: Tensor, counts: Tensor) -> Tensor:
    """Return the mean (texts, outputs) over the windows of each text, which follow each other.

    Args:
        values: (windows, outputs).
        counts: windows of each text, (texts,).
    """
    if len(counts) == len(values):
        return values
    return torch.segment_reduce(values, "mean", lengths=counts, axis=0)


def by_text(values: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    """Return the `means` of the rows of an evaluation batch, and of each text its first row, (texts,).

    Args:
        values: (B, outputs).
        index: which text each row is of, (B,); its rows follow each other.
    """
    counts = torch.unique_consecutive(index, return_counts=True)[1]
    return means(values, counts), counts.cumsum(0) - counts
