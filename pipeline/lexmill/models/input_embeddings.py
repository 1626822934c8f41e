"""The input embeddings among a model's weights, found by name: no network is built."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lexmill.base.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

NAMES = ("embedding.weight", "embeddings.word_embeddings.weight")


def input_embeddings(state: Mapping[str, Tensor]) -> NDArray[np.float32]:
    """Return the vector of each vocabulary entry, (V, D).

    Args:
        state: the weights, as `pretrained.read` or a module's `state_dict` gives them, without a pooled head.

    Raises:
        UserError: the model reads its text by other means.
    """
    for name in NAMES:
        if name in state:
            found: NDArray[np.float32] = state[name].detach().float().cpu().numpy()
            return found
    raise UserError("this model has no input embeddings")
