"""Initial weights: one function for a whole model."""

from __future__ import annotations

import math

from torch import nn


def gpt2_init(module: nn.Module, n_layer: int, std: float = 0.02) -> None:
    """GPT-2's initialisation (Radford et al. 2019), in place.

    Matrices and embeddings are normal with `std`; the projections that end a residual branch (named `output`)
    are normal with std / sqrt(2 * n_layer), so that the sum of 2 * n_layer branches keeps its variance; biases
    are 0, layer norms 1 and 0.
    """
    for name, child in module.named_modules():
        if isinstance(child, nn.Linear | nn.Embedding):
            residual = name.rsplit(".", 1)[-1] == "output"
            nn.init.normal_(child.weight, std=std / math.sqrt(2 * n_layer) if residual else std)
            if isinstance(child, nn.Linear) and child.bias is not None:
                nn.init.zeros_(child.bias)
        elif isinstance(child, nn.LayerNorm):
            nn.init.ones_(child.weight)
            nn.init.zeros_(child.bias)


def xavier_init(module: nn.Module, embedding_std: float) -> None:
    """Xavier-uniform matrices (Glorot and Bengio 2010), normal embeddings, zero biases, in place.

    A fused projection (`query_key_value`, `key_value`) is initialised part by part, so that its range is that of
    separate matrices. Used by encoder-decoder models; `embedding_std` is usually D ** -0.5.
    """
    for name, child in module.named_modules():
        if isinstance(child, nn.Linear):
            parts = {"query_key_value": 3, "key_value": 2}.get(name.rsplit(".", 1)[-1], 1)
            for part in child.weight.chunk(parts):
                nn.init.xavier_uniform_(part)
            if child.bias is not None:
                nn.init.zeros_(child.bias)
        elif isinstance(child, nn.Embedding):
            nn.init.normal_(child.weight, std=embedding_std)
            if child.padding_idx is not None:
                nn.init.zeros_(child.weight.data[child.padding_idx])
        elif isinstance(child, nn.LayerNorm):
            nn.init.ones_(child.weight)
            nn.init.zeros_(child.bias)
