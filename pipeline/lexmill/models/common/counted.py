"""FLOPs and kept bytes of a mixer, counted by a pass over a training window with torch's fake tensors: no memory."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from lexmill.models.common.undrawn import Undrawn


class Counts(NamedTuple):
    """Of one training token: FLOPs of matrix products, forward and backward; bytes that autograd keeps."""

    flops: int
    kept: int


@cache
def counted(made: Any, shape: Any) -> Counts:
    """Return the counts of `made(shape)`, a mixer, over one window of `shape.context` tokens in float32.

    The FLOPs are as torch counts them: products of matrices and convolutions.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils.flop_counter import FlopCounterMode

    kept: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage()._cdata] = tensor
        return tensor

    with torch.device("cpu"), FakeTensorMode(), Undrawn():
        mixer = made(shape)
        own = {parameter.untyped_storage()._cdata for parameter in mixer.parameters()}
        hidden = torch.zeros(1, shape.context, shape.d_model, requires_grad=True)
        shared = mixer.shared(torch.zeros(1, shape.context, dtype=torch.int64), 0, None)
        with torch.enable_grad(), FlopCounterMode(display=False) as counter:
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
                out = mixer(hidden, shared, None)
            out.sum().backward()
    given = {*own, hidden.untyped_storage()._cdata}
    total = sum(one.untyped_storage().nbytes() for key, one in kept.items() if key not in given)
    return Counts(round(counter.get_total_flops() / shape.context), round(total / shape.context))


class CountedMixer(nn.Module):
    """A mixer whose FLOPs and bytes are counted; a subclass is called with a shape and keeps it."""

    shape: Any

    def counts(self) -> Counts:
        """Return the FLOPs and bytes of a pass over a training window."""
        return counted(cast(Any, type(self)), self.shape)

    def flops(self, context: int) -> int:
        """Return the FLOPs of a training token, not counting 6 for each weight of a matrix, as torch counts them."""
        return self.counts().flops - 6 * sum(one.numel() for one in self.parameters() if one.ndim >= 2)

    def activation_bytes(self, low: int) -> int:
        """Return the bytes per token that autograd keeps in float32; bf16 saves little, as states stay in float32."""
        return self.counts().kept
