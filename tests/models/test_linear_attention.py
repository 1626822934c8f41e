"""The linear-attention family: each row beside its equation, chunked beside recurrent, identities, bounds."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from lexmill.models.linear_attention.rows import ROWS
from lexmill.models.linear_attention.shape import FAMILY, Shape

V = 23
LINEAR = [name for name in ROWS if name != "attention"]
TINY: dict[str, Any] = {**FAMILY.tiny, "n_layer": 1, "kernel": 3}


def mixer(name: str, **changes: Any) -> Any:
    """One row's mixer in float64; gates and skips are drawn too."""
    torch.manual_seed(0)
    made = ROWS[name](Shape(**{**TINY, "mixers": (name,), **changes})).double().eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return made


def windows(time: int, batch: int = 2) -> tuple[Tensor, Tensor]:
    """Hidden states (B, T, D), and documents: one row of two, one that starts at places of its own."""
    hidden = torch.randn(batch, time, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    cuts = torch.rand(batch, time, generator=torch.Generator().manual_seed(2)) < 0.15
    return hidden, cuts.cumsum(1)


def shared(made: Any, time: int, start: int = 0, documents: Tensor | None = None) -> Any:
    return made.shared(torch.zeros(2, time, dtype=torch.int64), start, documents)


def stepwise(made: Any, hidden: Tensor) -> Tensor:
    """The recurrent form: a token at a time through a state."""
    state = made.new_state(0)
    found = [made(one, shared(made, 1, place), state) for place, one in enumerate(hidden.split(1, dim=1))]
    return torch.cat(found, dim=1)


@pytest.mark.parametrize("chunk", [1, 16, 64])
@pytest.mark.parametrize("name", ROWS)
def test_in_chunks_it_is_its_recurrence(name: str, chunk: int) -> None:
    made = mixer(name, chunk=chunk, context=77)
    hidden, _ = windows(77)
    found = made(hidden, shared(made, 77), None)
    torch.testing.assert_close(found, stepwise(made, hidden), rtol=1e-8, atol=1e-9)
    low = made.float()(hidden.float(), shared(made, 77), None)
    assert (low - found).norm() / found.norm() < 1e-5


@pytest.mark.parametrize("name", ROWS)
def test_documents_do_not_see_each_other(name: str) -> None:
    made = mixer(name, chunk=8)
    hidden, documents = windows(29)
    found = made(hidden, shared(made, 29, documents=documents), None)
    for row in range(2):
        for number in documents[row].unique():
            places = documents[row] == number
            alone = hidden[row : row + 1, places].expand(2, -1, -1)
            wanted = made(alone, shared(made, alone.shape[1]), None)[0]
            torch.testing.assert_close(found[row, places], wanted, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("name", ROWS)
def test_a_state_carries_over_a_split(name: str) -> None:
    made = mixer(name, chunk=8, context=40)
    hidden, _ = windows(37)
    state, start, found = made.new_state(0), 0, []
    for piece in hidden.split([10, 1, 1, 17, 8], dim=1):
        found.append(made(piece, shared(made, piece.shape[1], start), state))
        start += piece.shape[1]
        assert state.length == start
        if start == 11:
            state.reorder(torch.tensor([0, 1]))
    torch.testing.assert_close(torch.cat(found, 1), made(hidden, shared(made, 37), None), rtol=1e-8, atol=1e-9)
