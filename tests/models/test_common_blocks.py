"""Dropout, feed-forward, initialisation, named weights."""

import math
from typing import Literal

import pytest
import torch
from torch import nn

from lexmill.base.errors import UserError
from lexmill.models.common.dropout import Dropout, add_dropped, keep_mask
from lexmill.models.common.feed_forward import FeedForward
from lexmill.models.common.gelu import bias_gelu
from lexmill.models.common.state import average, load_weights, snapshot, weights


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
def test_dropout_drops_its_share_and_keeps_the_mean(probability: float) -> None:
    torch.manual_seed(0)
    mask = keep_mask(torch.empty(301, 333), probability)
    share = (mask == 0).double().mean()
    error = math.sqrt(probability * (1 - probability) / mask.numel())
    assert abs(float(share) - probability) < 5 * error
    assert mask.max().item() == pytest.approx(1 / (1 - probability), rel=1e-3)
    assert abs(mask.double().mean() - 1) < 5 * error / (1 - probability)
    rows = (mask == 0).double().mean(0)  # no column is favoured
    assert float((rows - probability).abs().max()) < 6 * math.sqrt(probability * (1 - probability) / 301)


def test_dropout_is_a_function_of_torchs_random_state() -> None:
    like = torch.empty(5, 7)
    torch.manual_seed(3)
    first, second = keep_mask(like, 0.5), keep_mask(like, 0.5)
    torch.manual_seed(3)
    assert torch.equal(keep_mask(like, 0.5), first)
    assert torch.equal(keep_mask(like, 0.5), second)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropouts_gradient_is_its_mask(dtype: torch.dtype) -> None:
    hidden = torch.randn(4, 50, dtype=dtype).transpose(0, 1).requires_grad_()
    out = Dropout(0.3)(hidden)
    out.sum().backward()
    assert hidden.grad is not None
    torch.testing.assert_close(out, hidden * hidden.grad)
    assert out.dtype == dtype


def test_a_dropped_update_on_a_residual_is_dropout_and_a_sum() -> None:
    found = []
    for fused in (True, False):
        torch.manual_seed(4)
        residual, update = torch.randn(3, 50, requires_grad=True), torch.randn(3, 50, requires_grad=True)
        total = add_dropped(residual, update, 0.3, True) if fused else residual + Dropout(0.3)(update)
        (total * torch.arange(50.0)).sum().backward()
        found.append([total, residual.grad, update.grad])
    torch.testing.assert_close(found[0], found[1])
    assert torch.equal(add_dropped(residual, update, 0.3, False), residual + update)


def test_dropout_does_nothing_in_eval_mode_or_at_zero() -> None:
    hidden = torch.randn(3, 3)
    assert Dropout(0.5).eval()(hidden) is hidden
    assert Dropout(0.0)(hidden) is hidden
    with pytest.raises(ValueError, match="below 1"):
        Dropout(1.0)


def test_feed_forward_is_two_layers_and_an_activation() -> None:
    block = FeedForward(4, 9, "relu")
    hidden = torch.randn(2, 3, 4)
    wanted = block.output(torch.clamp(block.expand(hidden), min=0))
    torch.testing.assert_close(block(hidden), wanted)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.out = nn.Linear(3, 5, bias=False)
        self.out.weight = self.embedding.weight
        self.register_buffer("count", torch.tensor([2]))
        self.register_buffer("scratch", torch.zeros(9), persistent=False)


def test_a_tied_weight_stands_once_among_the_weights() -> None:
    assert set(weights(Tied())) == {"embedding.weight", "count"}


def test_loaded_weights_stay_tied_and_a_snapshot_does_not_follow() -> None:
    one, other = Tied(), Tied()
    state = snapshot(one)
    load_weights(other, state)
    assert other.out.weight is other.embedding.weight
    assert torch.equal(other.out.weight, one.out.weight)
    with torch.no_grad():
        one.embedding.weight.zero_()
    assert state["embedding.weight"].any()


def test_weights_that_do_not_fit_are_named() -> None:
    state = snapshot(Tied())
    state["embedding.weight"] = torch.zeros(6, 3)
    state["more"] = state.pop("count")
    with pytest.raises(UserError, match=r"x do not fit the model: 'count' is missing; 'more' is unknown; .*\(6, 3\)"):
        load_weights(Tied(), state, "x")


def test_an_average_is_summed_in_double_precision() -> None:
    snapshots = [{"w": torch.tensor([1e8 * sign + i])} for i, sign in enumerate([1.0, -1.0, 0.0])]
    wanted = sum(one["w"].double() for one in snapshots) / 3
    assert torch.equal(average(snapshots)["w"], wanted.float())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 700])
def test_gelu_with_its_bias_is_torchs(dtype: torch.dtype, rows: int) -> None:
    torch.manual_seed(0)
    hidden, bias = 4 * torch.randn(2, rows, 130), torch.randn(130)  # 700 rows: several slices and a broken one
    upstream = torch.randn_like(hidden)
    found = []
    for ours in (True, False):
        h = hidden.to(dtype).to(dtype if ours else torch.float64).detach().requires_grad_()
        b = bias.clone() if ours else bias.double()
        b.requires_grad_()
        out = bias_gelu(h, b) if ours else nn.functional.gelu(h + b, approximate="tanh")
        out.backward(upstream.to(out.dtype))
        assert h.grad is not None
        assert b.grad is not None
        assert not ours or out.dtype == h.grad.dtype == dtype
        found.append([out.detach().double(), h.grad.double(), b.grad.double() / rows])
    tolerance = 1e-5 if dtype == torch.float32 else 0.05
    torch.testing.assert_close(found[0], found[1], rtol=tolerance, atol=tolerance)


def test_gelu_of_great_numbers_is_finite() -> None:
    hidden = torch.tensor([[-1e4, -50.0, 0.0, 50.0, 1e4]], requires_grad=True)
    out = bias_gelu(hidden, torch.zeros(5))
    out.sum().backward()
    assert hidden.grad is not None
    torch.testing.assert_close(out, torch.tensor([[0.0, 0.0, 0.0, 50.0, 1e4]]))
    torch.testing.assert_close(hidden.grad, torch.tensor([[0.0, 0.0, 0.5, 1.0, 1.0]]))


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh"])
def test_a_feed_forward_layer_learns_as_the_plain_one_does(activation: Literal["relu", "gelu", "gelu_tanh"]) -> None:
    block, hidden = FeedForward(6, 10, activation), 3 * torch.randn(2, 3, 6)
    with torch.no_grad():
        silent = block(hidden)
    expanded = block.expand(hidden).double()
    half = 0.5 * expanded
    made = {
        "relu": expanded.clamp_min(0),
        "gelu": half * (1 + torch.erf(expanded / math.sqrt(2))),
        "gelu_tanh": half * (1 + torch.tanh(math.sqrt(2 / math.pi) * (expanded + 0.044715 * expanded**3))),
    }
    plain = block.output(made[activation].float())
    torch.testing.assert_close(block(hidden), plain)
    torch.testing.assert_close(silent, plain)
    parameters = list(block.parameters())
    found = torch.autograd.grad(block(hidden).pow(2).sum(), parameters)
    torch.testing.assert_close(found, torch.autograd.grad(plain.pow(2).sum(), parameters))
