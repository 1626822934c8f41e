"""Six scores of a decoder's state against the states of the source, behind one interface.

With s a state of the decoder and h_i the source's at position i, e_i is

    content     beta cos(s, h_i)                      Graves et al. 2014; beta is learned
    additive    v . tanh(W s + U h_i)                 Bahdanau et al. 2015
    location    (W s)_i: of the position alone        Luong et al. 2015
    general     s . W h_i                             Luong et al. 2015
    dot         s . h_i                               Luong et al. 2015
    scaled_dot  s . h_i / sqrt(D)                     Vaswani et al. 2017

and the softmax of e over the source's tokens weighs the h_i. What a score needs of the source alone is its `keys`.

Cost per pair of positions: D multiply-adds, for `additive` as many hyperbolic tangents; memory O(B T S), for `additive`
O(B T S D).

Shape letters: B sources, T decoder states, S source length, D width.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from lexmill.models.rnn_seq2seq.shape import Score


class Dot(nn.Module):
    """`dot`, and `scaled_dot` with the scale of the width."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = scale

    def keys(self, memory: Tensor) -> Tensor:
        """Return what `forward` reads of the source's states (B, S, D)."""
        return memory

    def forward(self, states: Tensor, keys: Tensor) -> Tensor:
        """Score decoder states (B, T, D) against keys (B, S, D): (B, T, S)."""
        return self.scale * states @ keys.transpose(1, 2)


class General(Dot):
    """`general`."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.matrix = nn.Linear(width, width, bias=False)

    def keys(self, memory: Tensor) -> Tensor:
        """See `Dot`."""
        out: Tensor = self.matrix(memory)
        return out


class Content(Dot):
    """`content`; its strength starts at sqrt(D), as `scaled_dot` of vectors of length sqrt(D)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.strength = nn.Parameter(torch.tensor([math.sqrt(width)]))

    def keys(self, memory: Tensor) -> Tensor:
        """See `Dot`."""
        return normalize(memory, dim=2)

    def forward(self, states: Tensor, keys: Tensor) -> Tensor:
        """See `Dot`."""
        return self.strength * super().forward(normalize(states, dim=2), keys)


class Additive(Dot):
    """`additive`."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.of_state, self.of_source = nn.Linear(width, width), nn.Linear(width, width, bias=False)
        self.weights = nn.Linear(width, 1, bias=False)

    def keys(self, memory: Tensor) -> Tensor:
        """See `Dot`."""
        out: Tensor = self.of_source(memory)
        return out

    def forward(self, states: Tensor, keys: Tensor) -> Tensor:
        """See `Dot`."""
        both = torch.tanh(self.of_state(states)[:, :, None] + keys[:, None])  # (B, T, S, D)
        out: Tensor = self.weights(both)[..., 0]
        return out


class Location(Dot):
    """`location`."""

    def __init__(self, width: int, positions: int) -> None:
        super().__init__()
        self.matrix = nn.Linear(width, positions)

    def forward(self, states: Tensor, keys: Tensor) -> Tensor:
        """See `Dot`."""
        size = keys.size(1)
        return nn.functional.linear(states, self.matrix.weight[:size], self.matrix.bias[:size])


def score(name: Score, width: int, positions: int) -> Dot | None:
    """Return the score of this name; None for "none"."""
    if name == "none":
        return None
    made = {
        "content": lambda: Content(width),
        "additive": lambda: Additive(width),
        "location": lambda: Location(width, positions),
        "general": lambda: General(width),
        "dot": Dot,
        "scaled_dot": lambda: Dot(width**-0.5),
    }
    return made[name]()
