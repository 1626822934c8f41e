"""The mechanism of the linear-attention family: each form of state, its steps, chunks, scans, bounds."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from lexmill.models.common.chunked_state import chunked
from lexmill.models.common.diagonal_scan import scan
from lexmill.models.common.documents import document_positions
from lexmill.models.common.matrix_state import Terms, recurrent
from lexmill.models.common.running_max import running_max
from lexmill.models.common.short_convolution import ShortConvolution


def terms(**more: Tensor) -> Terms:
    """Random terms in float64, B 2, H 3, T 45, K 6, V 5."""
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, 3, 45, width, dtype=torch.float64) for width in (6, 6, 5))
    return Terms(query, torch.nn.functional.normalize(key, dim=-1), value, **more)


def logs(width: int) -> Tensor:
    """Logs of decays, (2, 3, 45, width)."""
    drawn = torch.randn(2, 3, 45, width, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return torch.nn.functional.logsigmoid(drawn)


BETA = logs(1).exp()
FORMS: dict[str, dict[str, Tensor]] = {
    "sum": {},
    "head": {"key_decay": logs(1)},
    "keys": {"key_decay": logs(6)},
    "values": {"value_decay": logs(5)},
    "both": {"key_decay": logs(6), "value_decay": logs(5)},
    "delta": {"beta": BETA},
    "gated delta": {"beta": BETA, "key_decay": logs(1)},
    "bonus": {"key_decay": logs(6), "bonus": torch.randn(3, 1, 6, dtype=torch.float64)},
    "bonus and one decay": {"key_decay": logs(1), "bonus": torch.randn(3, 1, 6, dtype=torch.float64)},
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("chunk", [1, 8, 64])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_state_in_chunks_is_its_steps(form: str, chunk: int, packed: bool) -> None:
    """Outputs, last states, and gradients with regard to all terms and the first state."""
    made, first = terms(**FORMS[form]), torch.randn(2, 3, 6, 5, dtype=torch.float64)
    starts = torch.rand(2, 45, generator=torch.Generator().manual_seed(3)) < 0.1 if packed else None
    sources = [one.requires_grad_() for one in vars(made).values() if one is not None] + [first.requires_grad_()]
    wanted, found = recurrent(made, first, starts), chunked(made, first, chunk, starts)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)
    gradients = [torch.autograd.grad([one.sin().sum() for one in pair], sources) for pair in (found, wanted)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("form", FORMS)
def test_no_output_depends_on_a_later_token_to_the_bit(form: str) -> None:
    made = terms(**FORMS[form])
    low = Terms(**{name: None if part is None else part.float() for name, part in vars(made).items()})
    cut = {name: part.clone() for name, part in vars(low).items() if part is not None}
    for name, part in cut.items():
        if name != "bonus":
            part[:, :, 21:] = part[:, :, 21:] * 1.3
    one, other = (chunked(each, low.new_state(), 16)[0] for each in (low, Terms(**cut)))
    assert torch.equal(one[:, :, :21], other[:, :, :21])
    assert not torch.equal(one[:, :, 21], other[:, :, 21])


def run(**more: Tensor) -> Tensor:
    made = terms(**more)
    return chunked(made, made.new_state(), 16)[0]


def test_rows_are_special_cases_of_each_other() -> None:
    one = logs(1)
    equal = one.expand(-1, -1, -1, 6)
    close: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-10}
    torch.testing.assert_close(run(key_decay=equal), run(key_decay=one), **close)  # GLA, Mamba-2
    torch.testing.assert_close(run(value_decay=one.expand(-1, -1, -1, 5)), run(key_decay=one), **close)
    torch.testing.assert_close(run(beta=BETA, key_decay=torch.zeros_like(one)), run(beta=BETA), **close)  # DeltaNet
    torch.testing.assert_close(run(key_decay=torch.zeros_like(one)), run(), **close)  # linear attention
    fixed = torch.full_like(one, -0.1)
    torch.testing.assert_close(run(key_decay=fixed), run(key_decay=fixed.expand(-1, -1, -1, 6)), **close)  # RetNet
    made, decay = terms(), logs(6)
    forget = Terms(made.query, -torch.expm1(decay), made.value, decay)  # HGRN-2: GLA with k = 1 - a
    gla = Terms(made.query, 1 - decay.exp(), made.value, decay)
    found, wanted = (chunked(each, made.new_state(), 16)[0] for each in (forget, gla))
    torch.testing.assert_close(found, wanted, **close)


@pytest.mark.parametrize("strength", [5.0, 80.0, 1000.0])
@pytest.mark.parametrize("form", ["head", "keys", "values", "both", "gated delta", "bonus"])
def test_strong_decays_neither_overflow_nor_spoil_gradients(form: str, strength: float) -> None:
    changed = {name: part * strength if "decay" in name else part for name, part in FORMS[form].items()}
    exact = terms(**changed)
    low = Terms(**{name: None if part is None else part.float().requires_grad_() for name, part in vars(exact).items()})
    found = chunked(low, low.new_state(), 64)[0]
    torch.testing.assert_close(found.double(), recurrent(exact, exact.new_state())[0], rtol=1e-3, atol=1e-4)
    sources = [part for part in vars(low).values() if part is not None]
    assert all(one.isfinite().all() for one in torch.autograd.grad(found.sum(), sources))


@pytest.mark.parametrize("packed", [False, True])
def test_a_running_maximum_is_taken_one_by_one(packed: bool) -> None:
    forget, write, before = logs(1), 20 * torch.randn(2, 3, 45, 1).double(), torch.randn(2, 3, 1, 1).double()
    starts = torch.rand(2, 45, generator=torch.Generator().manual_seed(3)) < 0.1 if packed else None
    found, decay = running_max(forget, write, before, starts)
    last = before[:, :, 0]
    for t in range(45):
        fresh = torch.zeros(2, dtype=torch.bool) if starts is None else starts[:, t]
        wanted = torch.maximum(forget[:, :, t] + last, write[:, :, t])
        wanted = torch.where(fresh[:, None, None], write[:, :, t], wanted)
        torch.testing.assert_close(found[:, :, t], wanted)
        assert (decay[:, :, t] <= 1e-12).all()
        last = found[:, :, t]


def test_a_scan_is_taken_one_by_one() -> None:
    torch.manual_seed(0)
    decay, write, first = (torch.rand(*shape, dtype=torch.float64) for shape in ((5, 2, 3), (5, 2, 3), (2, 3)))
    state, wanted = first, []
    for d, x in zip(decay, write, strict=True):
        state = d * state + x
        wanted.append(state)
    torch.testing.assert_close(scan(decay, write, first), torch.stack(wanted))
    assert torch.autograd.gradcheck(scan, [one.requires_grad_() for one in (decay, write, first)])


def test_a_convolution_is_a_sum_over_the_last_tokens() -> None:
    torch.manual_seed(0)
    made = ShortConvolution(5, 3)
    inputs, documents = torch.randn(2, 9, 5), torch.tensor([[0] * 9, [0] * 4 + [1] * 5])
    assert torch.equal(made(inputs, None, None)[0], inputs)  # its weights start at zero
    with torch.no_grad():
        made.weight.normal_()
    taps = made.weight.view(3, 5)
    found, last = made(inputs, None, document_positions(documents))
    for row, t in itertools.product(range(2), range(9)):
        earlier = [back for back in range(3) if t - back >= 0 and documents[row, t - back] == documents[row, t]]
        wanted = inputs[row, t] + sum(taps[back] * inputs[row, t - back] for back in earlier)
        torch.testing.assert_close(found[row, t], wanted)
    assert torch.equal(last, inputs[:, -2:])
