"""The gated feed-forward layer SwiGLU (Shazeer 2020). Shape letters: B batch, T time, D width."""

from __future__ import annotations

from torch import Tensor, nn


class GatedFeedForward(nn.Module):
    """output(silu(gate(x)) * expand(x)), D -> d_ffn -> D at each position alone, without biases.

    Cost: 3 * D * d_ffn multiply-adds a token.
    """

    def __init__(self, d_model: int, d_ffn: int) -> None:
        super().__init__()
        self.gate = nn.Linear(d_model, d_ffn, bias=False)
        self.expand = nn.Linear(d_model, d_ffn, bias=False)
        self.output = nn.Linear(d_ffn, d_model, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        out: Tensor = self.output(nn.functional.silu(self.gate(hidden)) * self.expand(hidden))
        return out
