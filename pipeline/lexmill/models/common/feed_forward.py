"""Position-wise feed-forward layers, plain and gated. Shape letters: B batch, T time, D width."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from lexmill.models.common.dropout import Dropout
from lexmill.models.common.gelu import bias_gelu
from lexmill.models.common.mixer import Split


def relu_squared(inner: Tensor) -> Tensor:
    """max(0, x)^2 (So et al. 2021)."""
    return nn.functional.relu(inner).square()


Activation = Literal["relu", "gelu", "gelu_tanh", "relu_squared"]
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": partial(nn.functional.relu, inplace=True),
    "gelu": nn.functional.gelu,
    "gelu_tanh": partial(nn.functional.gelu, approximate="tanh"),
    "relu_squared": relu_squared,
}


class FeedForward(nn.Module):
    """D -> d_ffn -> D with an activation between, for each position separately.

    Cost: 2 * D * d_ffn multiply-adds a token.
    """

    def __init__(
        self,
        d_model: int,
        d_ffn: int,
        activation: Activation = "gelu_tanh",
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        """Args: dropout: on the activations (neither Vaswani et al. nor GPT-2 use it)."""
        super().__init__()
        self.expand = nn.Linear(d_model, d_ffn, bias=bias)
        self.activation = activation
        self.dropout = Dropout(dropout)
        self.output = nn.Linear(d_ffn, d_model, bias=bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        out: Tensor = self.output(self.dropout(self._expanded(hidden)))
        return out

    def _expanded(self, hidden: Tensor) -> Tensor:
        """Return the activations: (B, T, D) -> (B, T, d_ffn)."""
        if self.activation != "gelu_tanh":
            return ACTIVATIONS[self.activation](self.expand(hidden))
        weight, bias = self.expand.weight, self.expand.bias
        learning_on_cpu = hidden.device.type == "cpu" and torch.is_grad_enabled() and not torch.compiler.is_compiling()
        # Under tensor parallelism the layer must be called, for its hooks.
        if learning_on_cpu and type(weight) is nn.Parameter and bias is not None and bias.dtype == torch.float32:
            return bias_gelu(nn.functional.linear(hidden, weight), bias)
        return ACTIVATIONS["gelu_tanh"](self.expand(hidden))

    def split(self) -> Split:
        """Split by activations."""
        return {"expand": "columns", "output": "rows"}

    def activations_read(self) -> dict[str, Callable[[Tensor], Tensor]]:
        """Return the activation that the output layer reads."""
        exact: dict[str, Callable[[Tensor], Tensor]] = {"relu": nn.functional.relu, "relu_squared": relu_squared}
        return {"output": exact.get(self.activation, nn.functional.gelu)}

    def activation_bytes(self, low: int) -> int:
        """Return the bytes per token that autograd keeps: the activation's input and output, `low` bytes a number."""
        return low * 2 * self.expand.out_features


class GatedFeedForward(nn.Module):
    """output(activation(gate(x)) * expand(x)) (Shazeer 2020), D -> d_ffn -> D per position, without biases.

    With the default activation it is SwiGLU. Cost: 3 * D * d_ffn multiply-adds a token.
    """

    def __init__(self, d_model: int, d_ffn: int, activation: Callable[[Tensor], Tensor] = nn.functional.silu) -> None:
        super().__init__()
        self.activation = activation
        self.gate = nn.Linear(d_model, d_ffn, bias=False)
        self.expand = nn.Linear(d_model, d_ffn, bias=False)
        self.output = nn.Linear(d_ffn, d_model, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        out: Tensor = self.output(self.activation(self.gate(hidden)) * self.expand(hidden))
        return out

    def split(self) -> Split:
        """Split by activations."""
        return {"gate": "columns", "expand": "columns", "output": "rows"}

    def activations_read(self) -> dict[str, Callable[[Tensor], Tensor]]:
        """Return the gate's activation for the output layer."""
        return {"output": self.activation}

    def activation_bytes(self, low: int) -> int:
        """Return the bytes per token that autograd keeps: gate, its activation, the other factor, the product."""
        return low * 4 * self.expand.out_features
