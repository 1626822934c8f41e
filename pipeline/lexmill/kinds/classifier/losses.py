"""The loss of a text's label: cross-entropy, smoothed, focal, weighted by label.

Shape letters: B texts, L labels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional


def label_loss(logits: Tensor, labels: Tensor, *, smoothing: float = 0.0, focal_gamma: float = 0.0) -> Tensor:
    """Return the loss of each text (B,), in nats where `focal_gamma` is 0.

    With the target q (1 - smoothing at the right label, plus smoothing / L at each) and the probabilities p:

        - sum over labels of q * (1 - p)^focal_gamma * log p    (Szegedy et al. 2016, Lin et al. 2017)

    Args:
        logits: (B, L).
        labels: of the right ones, (B,).
    """
    if not focal_gamma:
        return functional.cross_entropy(logits, labels, reduction="none", label_smoothing=smoothing)
    log_p = logits.log_softmax(dim=1)  # (B, L)
    target = torch.full_like(log_p, smoothing / log_p.shape[1])
    target.scatter_add_(1, labels[:, None], torch.full_like(log_p[:, :1], 1 - smoothing))
    # 1 - p from the logarithm: at p near 1 the difference would be all rounding error; a root has no gradient at 0.
    other = -torch.expm1(log_p)
    return -(target * other.clamp(min=1e-12) ** focal_gamma * log_p).sum(dim=1)


def balanced_weights(labels: Sequence[int], n_labels: int) -> Tensor:
    """Return a weight for each label, N / (L * texts with it), so that all labels weigh the same in sum; (L,).

    As scikit-learn's `class_weight="balanced"`; a label without texts has the weight 0.
    """
    counts = np.bincount(np.asarray(labels), minlength=n_labels)
    weights = np.divide(len(labels), n_labels * counts, out=np.zeros(n_labels), where=counts > 0)
    return torch.from_numpy(weights).float()
