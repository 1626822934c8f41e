"""The gated feed-forward layer SwiGLU (Shazeer 2020). Shape letters: B batch, T time, D width."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from lexmill.models.common.mixer import Split


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

    def split(self) -> Split:
        """The activations over the devices."""
        return {"gate": "columns", "expand": "columns", "output": "rows"}

    def activations_read(self) -> dict[str, Callable[[Tensor], Tensor]]:
        """The output layer reads the gated values."""
        return {"output": nn.functional.silu}

    def activation_bytes(self, low: int) -> int:
        """Bytes a token that autograd keeps: gate, its activation, the other factor and the product."""
        return low * 4 * self.expand.out_features
