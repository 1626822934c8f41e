"""Every side of the benchmark of unpadded sequences computes the same states and gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks import unpadded


@pytest.mark.parametrize("kind", unpadded.LENGTHS)
def test_all_sides_agree(kind: str) -> None:
    module = unpadded.made("tiny", kind).double()
    rows = unpadded.drawn(kind, 5, np.random.default_rng(1))
    found = {}
    for name, side in unpadded.sides(module, rows).items():
        module.zero_grad()
        states = side()
        states.square().sum().backward()
        found[name] = (states.detach(), module.blocks[0].query.weight.grad.clone())
    assert len(found) == 6
    for name, one in found.items():
        for part, other in zip(one, found["padded"], strict=True):
            torch.testing.assert_close(part, other, rtol=1e-6, atol=1e-6, msg=name)
