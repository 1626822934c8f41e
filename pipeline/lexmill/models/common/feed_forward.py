"""The position-wise feed-forward layer. Shape letters: B batch, T time, D width."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from lexmill.models.common.dropout import Dropout


class FeedForward(nn.Module):
    """D -> d_ffn -> D with an activation between, at each position alone.

    Cost: 2 * D * d_ffn multiply-adds a token.
    """

    def __init__(
        self,
        d_model: int,
        d_ffn: int,
        activation: Literal["relu", "gelu_tanh"] = "gelu_tanh",
        dropout: float = 0.0,
    ) -> None:
        """Args: dropout: on the activations (Vaswani et al. have none there; GPT-2 neither)."""
        super().__init__()
        self.expand = nn.Linear(d_model, d_ffn)
        self.activation = nn.ReLU(inplace=True) if activation == "relu" else nn.GELU(approximate="tanh")
        self.dropout = Dropout(dropout)
        self.output = nn.Linear(d_ffn, d_model)

    def forward(self, hidden: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        out: Tensor = self.output(self.dropout(self.activation(self.expand(hidden))))
        return out
