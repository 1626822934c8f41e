"""How much of a source the attention of a translation has covered (Wu et al. 2016, equation 14).

With a_ij the weight that the last attention gives source token i as target token j is chosen, the end token among the
j but not among the i, the coverage is the sum over i of log min(sum over j of a_ij, 1): 0 where every source token got
a whole token's attention, less where some were left out. Cost: a pass of the network over each translation.

Shape letters: B translations, S source length, T target length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from lexmill.base.errors import UserError
from lexmill.tokenizers.tokenizer import TRAINED, SpecialIds

_LEAST = 1e-10  # of attention, so that no coverage is infinite


class Aligning(Protocol):
    """The interface of a network: see `EncoderDecoder.alignment`."""

    def alignment(self, source: Tensor, source_mask: Tensor, target_in: Tensor) -> Tensor: ...


def coverage(
    module: Aligning,
    source: Tensor,
    source_mask: Tensor,
    targets: Sequence[Sequence[int]],
    special: SpecialIds = TRAINED,
) -> list[float]:
    """Return the coverage of each source by its translation, at most 0.

    Args:
        module: in eval mode.
        source, source_mask: (B, S) int64 and bool; each row ends with the end token, then padding.
        targets: B rows of tokens without begin and end token.

    Raises:
        UserError: the network sees a source as one vector.
    """
    lengths = torch.tensor([len(one) + 1 for one in targets], device=source.device)
    width = int(lengths.max())
    rows = [[special.bos, *one, *[special.pad] * (width - 1 - len(one))] for one in targets]
    weights = module.alignment(source, source_mask, torch.tensor(rows, device=source.device))  # (B, T, S)
    if weights.size(2) != source.size(1):
        raise UserError("coverage_penalty: this model's decoder has no attention over the source; set it to 0")
    written = torch.arange(width, device=source.device)[None, :] < lengths[:, None]  # (B, T)
    sums = (weights.double() * written[:, :, None]).sum(dim=1)  # (B, S)
    tokens = source_mask & source_mask.roll(-1, dims=1)  # without the end token
    tokens[:, -1] = False
    found: list[float] = (sums.clamp(_LEAST, 1.0).log() * tokens).sum(dim=1).tolist()
    return found
