"""Reversible blocks (Gomez et al. 2017; Kitaev et al. 2020): the backward pass computes inputs from outputs.

Two streams, both the embedding at first, go through each block with mixer f and feed-forward layer g, each behind its
norm:

    y1 = x1 + f(x2),    y2 = x2 + g(y1);    back:    x2 = y2 - g(y1),    x1 = y1 - f(x2).

So nothing is kept for a block but its weights, for one more pass through it. The mean of the streams goes on. The
inputs come back up to rounding; a test holds the gradients to the plain computation.

Shape letters: B batch, T time, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from lexmill.models.common.block import Block


class ReversibleBlock(Block):
    """A pre-norm block without dropout, as the two functions of a reversible one."""

    def __init__(self, mixer: nn.Module, feed_forward: nn.Module, norm: Any) -> None:
        super().__init__(mixer, feed_forward, norm, dropout=0.0)

    def mix(self, hidden: Tensor, shared: Any, state: Any = None) -> Tensor:
        """f: (B, T, D) -> (B, T, D)."""
        out: Tensor = self.attention(self.attention_norm(hidden), shared, state)
        return out

    def feed(self, hidden: Tensor) -> Tensor:
        """g: (B, T, D) -> (B, T, D)."""
        out: Tensor = self.feed_forward(self.feed_forward_norm(hidden))
        return out

    def mixing(self) -> list[nn.Parameter]:
        """Return the weights of f."""
        return [*self.attention_norm.parameters(), *self.attention.parameters()]

    def feeding(self) -> list[nn.Parameter]:
        """Return the weights of g."""
        return [*self.feed_forward_norm.parameters(), *self.feed_forward.parameters()]

    def activation_bytes(self, low: int, mask: int, share: float) -> float:
        """Return 0: the backward pass computes what a block needs again."""
        return 0.0


def through(blocks: Sequence[ReversibleBlock], hidden: Tensor, shared: Any, states: Sequence[Any]) -> Tensor:
    """Map (B, T, D) to (B, T, D) through all blocks; with states, as in decoding, without a backward pass."""
    if any(state is not None for state in states) or not torch.is_grad_enabled():
        first = second = hidden
        for block, state in zip(blocks, states, strict=True):
            first = first + block.mix(second, shared, state)
            second = second + block.feed(first)
        return (first + second) / 2
    weights = [weight for block in blocks for weight in block.parameters()]
    first, second = _Reversible.apply(hidden, blocks, shared, *weights)
    return (first + second) / 2


class _Reversible(torch.autograd.Function):
    """The blocks, from one stream to two."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, blocks: Sequence[ReversibleBlock], shared: Any, *weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        first = second = hidden
        for block in blocks:
            first = first + block.mix(second, shared)
            second = second + block.feed(first)
        ctx.blocks, ctx.shared, ctx.weights = blocks, shared, weights
        kind = hidden.device.type
        ctx.autocast = kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind)
        ctx.save_for_backward(first, second)
        return first, second

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        first, second = ctx.saved_tensors
        of_first, of_second = gradients
        of_weights: dict[Tensor, Tensor | None] = {}
        for block in reversed(ctx.blocks):
            out, back, found = _pull(block.feed, block.feeding(), first, of_second, ctx.autocast)
            of_weights |= found
            second, of_first = second - out, of_first + back
            mix = partial(block.mix, shared=ctx.shared)
            out, back, found = _pull(mix, block.mixing(), second, of_first, ctx.autocast)
            of_weights |= found
            first, of_second = first - out, of_second + back
        return of_first + of_second, None, None, *(of_weights.get(weight) for weight in ctx.weights)


def _pull(
    function: Callable[[Tensor], Tensor],
    weights: Sequence[nn.Parameter],
    given: Tensor,
    passed: Tensor,
    autocast: tuple[str, torch.dtype, bool],
) -> tuple[Tensor, Tensor, dict[Tensor, Tensor | None]]:
    """Return a function's output again, the gradient of its input, and those of its weights.

    Args:
        weights: that the function reads.
        given, passed: its input, and the gradient of its output.
        autocast: device type, type and whether it is on, as in the forward pass.
    """
    learning = [weight for weight in weights if weight.requires_grad]
    with torch.enable_grad(), torch.autocast(*autocast):
        entered = given.detach().requires_grad_()
        out = function(entered)
        back, *found = torch.autograd.grad(out, [entered, *learning], passed, allow_unused=True)
    return out.detach(), back, dict(zip(learning, found, strict=True))
