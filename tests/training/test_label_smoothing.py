"""Label smoothing where probabilities vanish: log 0 must not enter the mean over the vocabulary."""

import pytest
import torch
from torch.nn import functional

from lexmill.models.common.cross_entropy import fused_cross_entropy


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_a_probability_of_zero_makes_no_infinite_loss(precision: torch.dtype) -> None:
    """Logits some 1,000 nats apart: in float32 all probabilities but one are 0, and their logarithms -inf."""
    hidden = torch.eye(4, 6).requires_grad_()
    weight = (1000.0 * torch.arange(10)[:, None] * torch.tensor([[1.0, -1.0, 0.5, 0.0, 2.0, 3.0]])).requires_grad_()
    targets = torch.tensor([0, 9, 3, 5])
    assert torch.softmax(hidden @ weight.t(), 1).log().isinf().any(), "the case is the one meant"
    with torch.autocast("cpu", precision, enabled=precision != torch.float32):
        loss = fused_cross_entropy(hidden, weight, targets, label_smoothing=0.1)
    loss.backward()
    logits = hidden.detach().double() @ weight.detach().double().t()
    wanted = functional.cross_entropy(logits, targets, label_smoothing=0.1, reduction="sum")
    assert loss.item() == pytest.approx(wanted.item(), rel=1e-5 if precision == torch.float32 else 1e-2)
    for gradient in (hidden.grad, weight.grad):
        assert gradient is not None
        assert gradient.isfinite().all()
