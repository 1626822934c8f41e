"""The input embeddings among a model's weights, found by name: no network is built."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lexmill.base.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor, nn

NAMES = (
    "embedding.weight",
    "embeddings.word_embeddings.weight",
    "network.embedding.weight",
    "network.shared.weight",
    "network.embeddings.word_embeddings.weight",
    "network.embeddings.tok_embeddings.weight",
)


def embedding_of(module: nn.Module, *, missing_ok: bool = False) -> Any:
    """Return the layer of a network, with a head or without, that looks up its input embeddings.

    Raises:
        UserError: it reads its text by other means, unless `missing_ok`: then None is returned.
    """
    layers = dict(module.named_modules())
    for name in NAMES:
        for prefix in ("", "encoder."):
            if (found := layers.get(prefix + name.removesuffix(".weight"))) is not None:
                return found
    if missing_ok:
        return None
    raise UserError("this model has no input embeddings")


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
