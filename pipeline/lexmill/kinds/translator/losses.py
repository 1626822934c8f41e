"""The losses of a translator's targets, end token included, and what its decoder reads in training.

Logits are computed only at targets, never at padding. Shape letters: B pairs, S source length, T target length, N
targets of a batch, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lexmill.data.permutation import fold

if TYPE_CHECKING:
    from torch import Tensor

    from lexmill.kinds.translator.batches import Ids, Mask


def smoothed_sum(
    module: Any, batch: Mapping[str, Tensor], smoothing: float, unsmoothed: Sequence[int] = ()
) -> tuple[Tensor, int]:
    """Return the summed loss of a batch's targets, and their number.

    Args:
        module: a translator.
        batch: source (B, S), source_mask, target_in (B, T), target_out, target_mask.
        smoothing: share of the probability spread evenly over the vocabulary.
        unsmoothed: ids that get none of it, as they are never written.
    """
    from lexmill.models.common.cross_entropy import fused_cross_entropy

    hidden = module.hidden(batch["source"], batch["source_mask"], batch["target_in"])  # (B, T, D)
    mask = batch["target_mask"]
    target = batch["target_out"][mask]  # (N,)
    matrix, bias = module.output_matrix, module.output_bias
    nats = fused_cross_entropy(hidden[mask], matrix, target, smoothing, bias=bias, unsmoothed=unsmoothed)
    return nats, len(target)


def consistent_sum(
    module: Any, batch: Mapping[str, Tensor], smoothing: float, weight: float, unsmoothed: Sequence[int] = ()
) -> tuple[Tensor, int]:
    """Return the summed loss of R-Drop (Liang et al. 2021), halved, and the number of targets.

    Each batch goes through the network twice, under two masks of dropout that give the distributions p and q of a
    target: the mean of both losses, and weight / 4 times KL(p || q) + KL(q || p).
    """
    import torch

    mask = batch["target_mask"]
    target = batch["target_out"][mask]  # (N,)

    def once() -> Tensor:
        hidden = module.hidden(batch["source"], batch["source_mask"], batch["target_in"])
        found: Tensor = module.project(hidden[mask]).float().log_softmax(dim=1)
        return found

    p, q = once(), once()  # (N, V)
    shares = torch.full_like(p[:1], smoothing / (p.size(1) - len(unsmoothed)))  # (1, V)
    shares[:, list(unsmoothed)] = 0.0
    nats = sum(-(1 - smoothing) * logs.gather(1, target[:, None]).sum() - (shares * logs).sum() for logs in (p, q))
    apart = ((p.exp() - q.exp()) * (p - q)).sum()
    return nats / 2 + weight / 4 * apart, len(target)


def own_places(index: Ids, mask: Mask, share: float, seed: int, step: int) -> Mask:
    """Draw the places (B, T) of a batch where the decoder reads its own prediction, each with the probability `share`.

    A pair's places depend on the step and the pair (B,), not on the rows beside it; the first token is always given.
    """
    found = np.zeros_like(mask)
    for row, pair in enumerate(index.tolist()):
        draws = np.random.default_rng(fold(seed, "own", step, pair)).random(mask.shape[1:])
        found[row, 1:] = draws[1:] < share
    return found & mask


def with_own(module: Any, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the batch with the network's likeliest tokens at the places `own` of its input.

    The tokens are predicted in a pass of their own over the given input, all at once (Mihaylova and Martins 2019), not
    one after another as in Bengio et al. (2015); no gradient goes through them.
    """
    import torch

    with torch.no_grad():
        hidden = module.hidden(batch["source"], batch["source_mask"], batch["target_in"])
        places = batch["own"][:, 1:]
        found = module.project(hidden[:, :-1][places]).argmax(dim=-1)
    given = batch["target_in"].clone()
    given[:, 1:][places] = found
    return {**batch, "target_in": given}
