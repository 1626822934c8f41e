"""A causal convolution over the last few tokens, each channel by itself, as Mamba and DeltaNet have before their state.

Cost: 2 * kernel FLOPs a token and channel, which are not counted: they are no product of matrices.

Shape letters: B batch, T time, C channels, W kernel width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ShortConvolution(nn.Module):
    """x_t + sum over i < W of w_i * x_{t-i}, with nothing before the start of a document.

    The weights are stored flat, because they are no matrix of a product; at zero, as they start, nothing is mixed.
    """

    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__()
        self.kernel = kernel
        self.weight = nn.Parameter(torch.zeros(kernel * channels))

    def forward(self, inputs: Tensor, before: Tensor | None, places: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the sums, (B, T, C), and the last W - 1 inputs, (B, W - 1, C).

        Args:
            inputs: (B, T, C).
            before: the W - 1 inputs before these; None: zero.
            places: (B, T) int64, the place of each token within its document; None: one document.
        """
        time = inputs.shape[1]
        if before is None:
            before = inputs.new_zeros(inputs.shape[0], self.kernel - 1, inputs.shape[2])
        known = torch.cat([before, inputs], dim=1)  # (B, W - 1 + T, C)
        weights = self.weight.view(self.kernel, -1).to(inputs.dtype).unbind(0)
        out = inputs * (1 + weights[0])
        for back in range(1, self.kernel):
            earlier = known[:, self.kernel - 1 - back :][:, :time]
            if places is not None:
                earlier = earlier * (places >= back)[..., None]
            out = torch.addcmul(out, earlier, weights[back])
        return out, known[:, time:]
