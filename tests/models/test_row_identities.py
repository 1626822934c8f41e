"""Rows that are special cases of each other: one class with another's weights computes the same, in both forms.

What differs around the recurrence (scales, strengths of writes) is made equal in the projections that a row is given.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from lexmill.models.common.rotary import rotate
from lexmill.models.common.rows import ROWS
from lexmill.models.linear_attention.shape import FAMILY, Shape

T, H, K = 13, 2, 8
SIZES: dict[str, Any] = {**FAMILY.tiny, "n_layer": 1, "kernel": 0, "chunk": 4}


def row(name: str) -> Any:
    torch.manual_seed(0)
    made = ROWS[name](Shape(**{**SIZES, "mixers": ("retnet", name)})).double().eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return made


def text() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Hidden states (2, T, D); queries, keys and values (2, H, T, K)."""
    random = torch.Generator().manual_seed(1)
    hidden = torch.randn(2, T, 16, dtype=torch.float64, generator=random)
    query, key, value = torch.randn(3, 2, H, T, K, dtype=torch.float64, generator=random)
    return hidden, query, key, value


def shared(made: Any, start: int, time: int) -> Any:
    return made.shared(torch.zeros(2, time, dtype=torch.int64), start, None)


def read(made: Any, hidden: Tensor, *heads: Tensor, chunks: bool) -> Tensor:
    """What a row reads from its state, (2, H, T, K): in chunks, or a token at a time."""
    if chunks:
        whole: Tensor = made.mix(hidden, list(heads), shared(made, 0, T), None)
        return whole
    state, found = made.new_state(0), []
    for t in range(T):
        now = [part[:, :, t : t + 1] for part in heads]
        found.append(made.mix(hidden[:, t : t + 1], now, shared(made, t, 1), state))
    return torch.cat(found, 2)


def assert_same(found: Tensor, wanted: Tensor) -> None:
    assert wanted.abs().mean() > 0.1
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("chunks", [True, False])
def test_gla_with_equal_gates_is_mamba2(chunks: bool) -> None:
    """sigmoid(z)^(1/16) = exp(-softplus(-z) / 16): a step from -z at the rate 1/16."""
    gla, mamba2 = row("gla"), row("mamba2")
    hidden, query, key, value = text()
    with torch.no_grad():
        for part in (gla.forget.weight, gla.forget.bias):
            part.copy_(part[::K].repeat_interleave(K, 0))  # one gate for all keys of a head
        mamba2.step.linear.weight.copy_(-gla.forget.weight[::K] @ gla.narrow.weight)
        mamba2.step.bias.copy_(-gla.forget.bias[::K])
        mamba2.step.log_rate.fill_(1 / 16).log_()
        mamba2.skip.zero_()
        strength, _ = mamba2.step(hidden)  # of Mamba-2's writes
        found = read(gla, hidden, query * K**0.5, key, value * strength, chunks=chunks)
        assert_same(found, read(mamba2, hidden, query, key, value, chunks=chunks))


@pytest.mark.parametrize("chunks", [True, False])
def test_retnet_is_mamba2_with_a_constant_gate(chunks: bool) -> None:
    """Mamba-2 has no positions, so its queries and keys are rotated before."""
    retnet, mamba2 = row("retnet"), row("mamba2")
    hidden, query, key, value = text()
    with torch.no_grad():
        mamba2.step.linear.weight.zero_()
        mamba2.skip.zero_()
        strength, _ = mamba2.step(hidden)
        wanted = 1 - 2.0 ** (-5 - torch.arange(H).double())
        mamba2.step.log_rate.copy_((-wanted.log() / strength[0, :, 0, 0]).log())
        turn = shared(retnet, 0, T).rotation
        turned = (rotate(part.transpose(1, 2), turn).transpose(1, 2) for part in (query, key))
        found = read(retnet, hidden, query * K**0.5, key, value, chunks=chunks)
        assert_same(found, read(mamba2, hidden, *turned, value / strength, chunks=chunks))


@pytest.mark.parametrize("chunks", [True, False])
def test_a_gated_deltanet_with_gate_1_is_deltanet(chunks: bool) -> None:
    gated, delta = row("gated_deltanet"), row("deltanet")
    hidden, *heads = text()
    gated.load_state_dict({**gated.state_dict(), **delta.state_dict()})
    with torch.no_grad():
        gated.step.log_rate.fill_(-torch.inf)
        assert_same(read(gated, hidden, *heads, chunks=chunks), read(delta, hidden, *heads, chunks=chunks))


@pytest.mark.parametrize("chunks", [True, False])
def test_hgrn2_is_gla_that_writes_what_it_forgets(chunks: bool) -> None:
    """k = 1 - a for each key."""
    hgrn2, gla = row("hgrn2"), row("gla")
    hidden, query, _, value = text()
    with torch.no_grad():
        decay = logsigmoid(gla.heads(gla.forget(gla.narrow(hidden)))) / 16
        kept = decay.exp()  # (2, H, T, K)
        found = read(hgrn2, hidden, query, kept.logit() - hgrn2.bias, value * 8, chunks=chunks)
        assert_same(found, read(gla, hidden, query * K**0.5, 1 - kept, value * 8, chunks=chunks))


@pytest.mark.parametrize("chunks", [True, False])
def test_gla_with_gates_of_1_is_linear_attention(chunks: bool) -> None:
    gla, linear = row("gla"), row("linear")
    hidden, *heads = text()
    with torch.no_grad():
        gla.forget.bias.fill_(torch.inf)
        assert_same(read(gla, hidden, *heads, chunks=chunks), read(linear, hidden, *heads, chunks=chunks))
