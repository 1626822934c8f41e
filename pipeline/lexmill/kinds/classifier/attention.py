"""What the tokens of a text attend to in a classifier, for a picture beside its shaded words.

Letters: T tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lexmill.data.texts import Text, read
from lexmill.models.attention_weights import attention_weights, rollout
from lexmill.tokenizers import Tokenizer

PICTURED, LONGEST = 2, 32  # texts, and their tokens: more cannot be read

Pictured = tuple[list[str], list[str], tuple[NDArray[np.float32], NDArray[np.float32]]]


def attention(
    module: nn.Module, tokenizer: Tokenizer, texts: Sequence[Text], config: Mapping[str, Any]
) -> list[Pictured]:
    """Return the tokens of the first short texts, as those that attend and those attended to, and their weights.

    The weights, (T, T) each, are those of the last layer, the mean over heads, and the rollout; a network without
    softmax attention between all tokens has nothing.

    Args:
        config: the model's.
    """
    device = next(tensor.device for tensor in (*module.parameters(), *module.buffers()))

    def layers_of(row: Sequence[int]) -> list[Tensor]:
        """Return the weights of each layer; nothing where one is not of all tokens on all."""
        tokens = torch.tensor([row], device=device)
        layers = attention_weights(module, tokens, torch.ones_like(tokens, dtype=torch.bool))
        return layers if all(weights.shape[-2:] == (len(row), len(row)) for weights in layers) else []

    if not layers_of([tokenizer.bos_id]):
        return []
    whole = (read(tokenizer, [text], config).rows for text in texts)
    short = [rows[0] for rows in whole if len(rows) == 1 and len(rows[0]) <= LONGEST]
    found: list[Pictured] = []
    for row in short[:PICTURED]:
        layers = layers_of(row)
        last, through = (weights[0].cpu().numpy() for weights in (layers[-1].mean(dim=1), rollout(layers)))
        tokens = [tokenizer.decode([one], skip_special=False).strip() for one in row]
        found.append((tokens, tokens, (last, through)))
    return found
