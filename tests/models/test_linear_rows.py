"""Each row of the linear-attention family beside its equation, written out for one head and one token at a time.

Letters as in the equations: S is V x K; q, k, v are (T, K); x is (T, D).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import elu, silu, softplus

from lexmill.models.common.rows import ROWS
from lexmill.models.linear_attention.shape import FAMILY, Shape

SIZES: dict[str, Any] = {**FAMILY.tiny, "n_layer": 1, "kernel": 3, "chunk": 4}
K, N, M = 8, SIZES["d_state"], SIZES["n_slot"]
Twin = Callable[[Any, Tensor, list[Tensor], int], Tensor]
TWINS: dict[str, Twin] = {}


def twin(function: Twin) -> Twin:
    TWINS[function.__name__] = function
    return function


def made(name: str) -> Any:
    torch.manual_seed(0)
    mixer = ROWS[name](Shape(**{**SIZES, "mixers": (name,)})).double().eval()
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return mixer


def zero(rows: int = K, columns: int = K) -> Tensor:
    return torch.zeros(rows, columns, dtype=torch.float64)


def of_head(rows: Tensor, h: int, width: int = K) -> Tensor:
    """The part of a head: (..., H * width) -> (..., width)."""
    return rows[..., h * width : (h + 1) * width]


def phi(x: Tensor) -> Tensor:
    return elu(x) + 1


def unit(x: Tensor) -> Tensor:
    return x / x.square().sum().sqrt()


@twin
def linear(m: Any, x: Tensor, heads: list[Tensor], h: int) -> Tensor:
    s, found = zero(), []
    for q, k, v in zip(*heads, strict=True):
        s = s + torch.outer(v, k)
        found.append(s @ q / K**0.5)
    return torch.stack(found)


@twin
def linear_kernel(m: Any, x: Tensor, heads: list[Tensor], h: int) -> Tensor:
    s, found = zero(), []
    for q, k, v in zip(*heads, strict=True):
        s = s + torch.outer(v, phi(k))
        found.append(s @ phi(q))
    return torch.stack(found)


@twin
def performer(m: Any, x: Tensor, heads: list[Tensor], h: int) -> Tensor:
    features = FAMILY.tiny["n_feature"]
    s, z, largest, found = zero(K, features), zero(1, features)[0], -torch.inf, []
    for q, k, v in zip(*heads, strict=True):
        logs = [m.features.double() @ (one / K**0.25) - one.square().sum() / (2 * K**0.5) for one in (q, k)]
        before, largest = largest, max(largest, float(logs[1].detach().max()))
        of_q, of_k = (logs[0] - logs[0].max()).exp() + 1e-6, (logs[1] - largest).exp() + 1e-6
        fade = 0.0 if before == -torch.inf else torch.tensor(before - largest).double().exp()
        s, z = s * fade + torch.outer(v, of_k), z * fade + of_k
        found.append(s @ of_q / (z @ of_q))
    return torch.stack(found)


@twin
def linear_normalized(m: Any, x: Tensor, heads: list[Tensor], h: int) -> Tensor:
    s, z, found = zero(), zero()[0], []
    for q, k, v in zip(*heads, strict=True):
        s, z = s + torch.outer(v, phi(k)), z + phi(k)
        found.append(s @ phi(q) / (z @ phi(q)))
    return torch.stack(found)


@twin
def deltanet(m: Any, x: Tensor, heads: list[Tensor], h: int) -> Tensor:
    s, found = zero(), []
    for token, q, k, v in zip(x, *heads, strict=True):
        b = torch.sigmoid(m.beta.weight[h] @ token)
        s = s @ (torch.eye(K) - b * torch.outer(unit(k), unit(k))) + b * torch.outer(v, unit(k))
        found.append(s @ unit(q))
    return torch.stack(found)


@twin
def gated_rfa(m: Any, x: Tensor, heads: list[Tensor], h: int) -> Tensor:
    s, z, found = zero(), zero()[0], []
    for token, q, k, v in zip(x, *heads, strict=True):
        g = torch.sigmoid(m.forget.weight[h] @ token + m.bias[h])
        q_, k_ = (torch.relu(m.features.T @ unit(one)) for one in (q, k))
        s, z = g * s + (1 - g) * torch.outer(v, k_), g * z + (1 - g) * k_
        found.append(s @ q_ / (z @ q_).clamp_min(1e-6))
    return torch.stack(found)


@twin
def s4(m: Any, x: Tensor, heads: list[Tensor], h: int) -> Tensor:
    a, d = of_head(m.log_a.exp(), h), of_head(m.skip, h)
    rate, b, c = (of_head(one, h, K * N).view(K, N) for one in (m.log_rate, m.write, m.read))
    s, found = zero(K, N), []
    for v in heads[0]:
        s = s * torch.exp(-torch.outer(a, torch.ones(N).double()) * rate.exp()) + b * v[:, None]
        found.append((s * c).sum(1) + d * v)
    return torch.stack(found)


@twin
def abc(m: Any, x: Tensor, heads: list[Tensor], h: int) -> Tensor:
    keys, values, total, found = zero(K, M), zero(K, M), zero()[0, :M], []
    for token, q, k, v in zip(x, *heads, strict=True):
        f = torch.softmax(m.control.weight[h * M : (h + 1) * M] @ token, 0)
        keys, values, total = keys + torch.outer(k, f), values + torch.outer(v, f), total + f
        found.append((values / total) @ torch.softmax((keys / total).T @ q / K**0.5, 0))
    return torch.stack(found)


@twin
def dfw(m: Any, x: Tensor, heads: list[Tensor], h: int) -> Tensor:
    s, found = zero(), []
    for q, k, v, by_key, by_value in zip(*heads, strict=True):
        a, b = torch.sigmoid(by_key + m.bias), torch.sigmoid(by_value + m.bias)
        s = s * torch.outer(b, a) + torch.outer(v, k)
        found.append(s @ q / K**0.5)
    return torch.stack(found)


@twin
def retnet(m: Any, x: Tensor, heads: list[Tensor], h: int) -> Tensor:
    s, found = zero(), []
    for t, (q, k, v) in enumerate(zip(*heads, strict=True)):
        turn = torch.polar(torch.ones(K // 2), t * 10000.0 ** (-torch.arange(K // 2) * 2 / K)).to(torch.complex128)
        turned = (torch.complex(one[: K // 2], one[K // 2 :]) * turn for one in (q, k))
        q_, k_ = (torch.cat([one.real, one.imag]) for one in turned)
        s = (1 - 2.0 ** (-5 - h)) * s + torch.outer(v, k_)
        found.append(s @ q_ / K**0.5)
    return torch.stack(found)


@twin
def mamba(m: Any, x: Tensor, heads: list[Tensor], h: int) -> Tensor:
    """All channels at once: they share what they read and write by; `heads` has those of all heads."""
    rank, rate = m.step.in_features, of_head(m.log_rate, h, K * N).view(K, N).exp()
    s, found = zero(K, N), []
    for value in heads[0]:
        low, q, k = (m.selection.weight @ value).split([rank, N, N])
        v, a = of_head(value, h), of_head(softplus(m.step.weight @ low + m.bias), h)
        s = s * torch.exp(-a[:, None] * rate) + torch.outer(a * v, k)
        found.append(s @ q + of_head(m.skip, h) * v)
    return torch.stack(found)


@twin
def gla(m: Any, x: Tensor, heads: list[Tensor], h: int) -> Tensor:
    s, found = zero(), []
    for token, q, k, v in zip(x, *heads, strict=True):
        a = torch.sigmoid(of_head(m.forget.weight @ m.narrow.weight @ token + m.forget.bias, h)) ** (1 / 16)
        s = s @ torch.diag(a) + torch.outer(v, k)
        found.append(s @ q / K**0.5)
    return torch.stack(found)


@twin
def rwkv6(m: Any, x: Tensor, heads: list[Tensor], h: int) -> Tensor:
    s, d, found = zero(), of_head(m.bonus, h), []
    for token, q, k, v in zip(x, *heads, strict=True):
        a = torch.exp(-torch.exp(of_head(m.forget.weight @ torch.tanh(m.narrow.weight @ token), h) + m.bias))
        found.append((s + torch.outer(v, d * k)) @ q / K**0.5)
        s = s @ torch.diag(a) + torch.outer(v, k)
    return torch.stack(found)


@twin
def hgrn2(m: Any, x: Tensor, heads: list[Tensor], h: int) -> Tensor:
    s, found = zero(), []
    for q, forget, v in zip(*heads, strict=True):
        a = torch.sigmoid(forget + m.bias)
        s = s @ torch.diag(a) + torch.outer(v, 1 - a)
        found.append(s @ q)
    return torch.stack(found)


@twin
def mlstm(m: Any, x: Tensor, heads: list[Tensor], h: int) -> Tensor:
    s, z, found = zero(), zero()[0], []
    for token, q, k, v in zip(x, *heads, strict=True):
        gates = m.gates.weight @ token + m.bias
        i, f = gates[h].exp() / K**0.5, torch.sigmoid(gates[m.shape.n_head + h])
        s, z = f * s + i * torch.outer(v, k), f * z + i * k
        found.append(s @ q / (z @ q).abs().clamp_min(1.0))
    return torch.stack(found)


@twin
def mamba2(m: Any, x: Tensor, heads: list[Tensor], h: int) -> Tensor:
    s, found = zero(), []
    for token, q, k, v in zip(x, *heads, strict=True):
        a = softplus(m.step.linear.weight[h] @ token + m.step.bias[h])
        s = torch.exp(-a * m.step.log_rate[h].exp()) * s + torch.outer(a * v, k)
        found.append(s @ q + m.skip[h] * v)
    return torch.stack(found)


@twin
def gsa(m: Any, x: Tensor, heads: list[Tensor], h: int) -> Tensor:
    keys, values, found = zero(K, M), zero(K, M), []
    for token, q, k, v in zip(x, *heads, strict=True):
        a = torch.sigmoid(m.forget.weight[h * M : (h + 1) * M] @ token) ** (1 / 8)
        keys = keys @ torch.diag(a) + torch.outer(k, 1 - a)
        values = values @ torch.diag(a) + torch.outer(v, 1 - a)
        found.append(values @ torch.softmax(keys.T @ q / K**0.5, 0))
    return torch.stack(found)


@twin
def gated_deltanet(m: Any, x: Tensor, heads: list[Tensor], h: int) -> Tensor:
    s, found = zero(), []
    for token, q, k, v in zip(x, *heads, strict=True):
        b = torch.sigmoid(m.beta.weight[h] @ token)
        step = softplus(m.step.linear.weight[h] @ token + m.step.bias[h])
        a = torch.exp(-step * m.step.log_rate[h].exp())
        s = s @ (a * (torch.eye(K) - b * torch.outer(unit(k), unit(k)))) + b * torch.outer(v, unit(k))
        found.append(s @ unit(q))
    return torch.stack(found)


def layer(name: str, m: Any, x: Tensor) -> Tensor:
    """A whole layer over one sequence: (T, D) -> (T, D)."""
    inner = m.output.in_features
    projected = x @ m.projections.weight.T
    if m.convolution is not None:
        taps = m.convolution.weight.view(m.shape.kernel, -1)
        before = [torch.cat([zero(back, projected.shape[1]), projected])[: len(x)] for back in range(len(taps))]
        projected = silu(projected + sum(tap * one for tap, one in zip(taps, before, strict=True)))
    parts, found = projected.split(inner, -1), []
    for h in range(m.shape.n_head):
        out = TWINS[name](m, x, list(parts) if name == "mamba" else [of_head(part, h) for part in parts], h)
        if m.norm is not None:
            out = out / (out.square().mean(-1, keepdim=True) + 1e-5).sqrt() * m.norm.weight
        found.append(out)
    out = torch.cat(found, -1)
    if m.gate is not None:
        gate = x @ m.gate.weight.T
        out = out * gate.sigmoid() * (1 if name == "mlstm" else gate)
    return out @ m.output.weight.T


@pytest.mark.parametrize("name", sorted(ROWS.keys() - {"attention", "local", "lsh"}))
def test_a_row_is_its_equation(name: str) -> None:
    mixer = made(name)
    hidden = torch.randn(2, 7, 16, dtype=torch.float64, requires_grad=True)
    wanted = torch.stack([layer(name, mixer, row) for row in hidden])
    ids, state = torch.zeros(2, 7, dtype=torch.int64), mixer.new_state(0)
    steps = [mixer(one, mixer.shared(ids[:, :1], t, None), state) for t, one in enumerate(hidden.split(1, 1))]
    for found in (torch.cat(steps, 1), mixer(hidden, mixer.shared(ids, 0, None), None)):
        torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-7)
        sources, weight = [hidden, *mixer.parameters()], torch.linspace(-1, 1, 16).double()
        theirs = torch.autograd.grad((wanted * weight).sum(), sources, retain_graph=True)
        for one, other in zip(torch.autograd.grad((found * weight).sum(), sources), theirs, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)


def test_every_row_has_a_twin() -> None:
    assert TWINS.keys() == ROWS.keys() - {"attention", "local", "lsh"}
