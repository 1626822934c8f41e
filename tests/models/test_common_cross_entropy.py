"""The loss fused with the output projection, beside torch's."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear

from lexmill.models.common import cross_entropy as module
from lexmill.models.common.cross_entropy import IGNORED, fused_cross_entropy


def both(
    hidden: Tensor, weight: Tensor, targets: Tensor, smoothing: float
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """(loss, gradient by hidden, gradient by weight) of ours and of torch's in float64."""
    found = []
    for ours in (True, False):
        h, w = (x.detach().to(x.dtype if ours else torch.float64).requires_grad_() for x in (hidden, weight))
        if ours:
            loss = fused_cross_entropy(h, w, targets, smoothing)
        else:
            logits = linear(h, w).flatten(0, -2)
            loss = cross_entropy(logits, targets.flatten(), label_smoothing=smoothing, reduction="sum")
        (loss / 7).backward()
        assert h.grad is not None
        assert w.grad is not None
        found.append((loss.detach().double(), h.grad.double(), w.grad.double()))
    return found[0], found[1]


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("rows", [1, 64, 77])
@pytest.mark.parametrize("ignored", [False, True])
def test_the_fused_loss_is_torchs_with_its_gradients(
    smoothing: float, rows: int, ignored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(module._FEWEST_ROWS, torch.float32, 32)
    monkeypatch.setitem(module._SLICE, "cpu", 1)  # slices of 32 rows: one, whole ones, a broken one
    torch.manual_seed(rows)
    targets = torch.randint(0, 31, (2, rows))
    if ignored:
        targets[:, ::3] = IGNORED
    found, wanted = both(torch.randn(2, rows, 8), torch.randn(31, 8), targets, smoothing)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    assert not ignored or not found[1][:, ::3].any()


def test_entries_that_are_never_predicted_get_no_share() -> None:
    torch.manual_seed(0)
    hidden, weight, bias = torch.randn(40, 8), torch.randn(31, 8), torch.randn(31)
    targets, never = torch.randint(0, 31, (40,)), [0, 1, 2, 4]
    targets[::5] = IGNORED
    h, w = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
    loss = fused_cross_entropy(h, w, targets, 0.1, bias=bias, unsmoothed=never)
    loss.backward()
    exact_h, exact_w = (x.double().requires_grad_() for x in (hidden, weight))
    logs = (exact_h @ exact_w.t() + bias.double()).log_softmax(1)
    wanted = torch.zeros((), dtype=torch.float64)
    for row, target in zip(logs, targets.tolist(), strict=True):
        if target != IGNORED:
            smoothed = [row[i] for i in range(31) if i not in never]
            wanted = wanted - 0.9 * row[target] - 0.1 * sum(smoothed) / len(smoothed)
    wanted.backward()
    assert loss.item() == pytest.approx(wanted.item(), rel=1e-6)
    torch.testing.assert_close(h.grad, exact_h.grad.float(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(w.grad, exact_w.grad.float(), rtol=1e-5, atol=1e-5)


def test_it_is_finite_for_great_logits_and_for_no_targets() -> None:
    hidden, weight = torch.full((2, 4), 300.0, requires_grad=True), torch.randn(9, 4, requires_grad=True)
    loss = fused_cross_entropy(hidden, weight, torch.tensor([0, 8]), 0.1)
    loss.backward()
    assert loss.isfinite()
    assert hidden.grad is not None
    assert hidden.grad.isfinite().all()
    assert fused_cross_entropy(hidden[:0], weight, torch.zeros(0, dtype=torch.int64), 0.1).item() == 0.0
    nothing = fused_cross_entropy(hidden, weight, torch.tensor([IGNORED, IGNORED]))
    assert nothing.item() == 0.0


def test_under_bf16_the_loss_and_its_gradients_are_near_those_of_float32() -> None:
    torch.manual_seed(0)
    hidden, weight = torch.randn(40, 16, requires_grad=True), torch.randn(50, 16, requires_grad=True)
    target = torch.randint(0, 50, (40,))
    exact = fused_cross_entropy(hidden, weight, target, 0.1)
    exact.backward()
    wanted, hidden.grad = hidden.grad, None
    with torch.autocast("cpu", torch.bfloat16):
        loss = fused_cross_entropy(hidden, weight, target, 0.1)
    loss.backward()
    assert hidden.grad is not None
    assert wanted is not None
    assert loss.dtype == hidden.grad.dtype == torch.float32
    assert loss.item() == pytest.approx(exact.item(), rel=0.01)
    assert float((hidden.grad - wanted).norm() / wanted.norm()) < 0.02


def test_without_gradients_it_is_the_same_number() -> None:
    hidden, weight, targets = torch.randn(5, 4), torch.randn(9, 4, requires_grad=True), torch.tensor([0, 8, 3, 3, 1])
    with torch.no_grad():
        silent = fused_cross_entropy(hidden, weight, targets)
    assert silent.item() == fused_cross_entropy(hidden, weight, targets).item()
