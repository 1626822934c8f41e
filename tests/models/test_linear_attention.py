"""The linear-attention family: each row beside its equation, chunked beside recurrent, identities, bounds."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from lexmill.base import strict
from lexmill.models.common.decoder_attention import DecoderAttention
from lexmill.models.common.rows import ROWS
from lexmill.models.declaration import unlike
from lexmill.models.linear_attention.model import LinearAttention
from lexmill.models.linear_attention.shape import FAMILY, Shape

V = 23
LINEAR = [name for name in ROWS if name not in ("attention", "local", "lsh")]
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


@pytest.mark.parametrize("name", LINEAR)
def test_in_low_precision_it_learns_and_stays_close(name: str) -> None:
    made = mixer(name, chunk=8).float()
    hidden = windows(29)[0].float()
    wanted = made(hidden, shared(made, 29), None)
    with torch.autocast("cpu", torch.bfloat16):
        found = made(hidden, shared(made, 29), None)
    found.float().square().sum().backward()
    assert (found - wanted).norm() < 0.05 * wanted.norm()
    assert all(one.grad.isfinite().all() for one in made.parameters())
    low = made.bfloat16()
    state = low.new_state(0)
    pieces = [low(one, shared(low, one.shape[1]), state) for one in hidden.bfloat16().split([28, 1], 1)]
    assert all(one.dtype == torch.bfloat16 and one.isfinite().all() for one in pieces)


def test_large_gates_of_mlstm_do_not_overflow() -> None:
    made = mixer("mlstm", chunk=8).float()
    with torch.no_grad():
        made.gates.weight.mul_(300)
    hidden = windows(29)[0].float()
    out = made(hidden, shared(made, 29), None)
    out.sum().backward()
    assert out.isfinite().all()
    assert all(one.grad.isfinite().all() for one in made.parameters())
    torch.testing.assert_close(out, stepwise(made, hidden), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("pieces", [[40], [12, 28], [1] * 40, [5, 1, 1, 33]])
def test_attention_sees_a_window_however_it_is_cut(pieces: list[int]) -> None:
    made = mixer("attention", context=7)
    hidden, _ = windows(40)
    state, start, found = made.new_state(0), 0, []
    for piece in hidden.split(pieces, dim=1):
        found.append(made(piece, shared(made, piece.shape[1], start), state))
        start += piece.shape[1]
        assert state._keys.shape[2] <= 6
    for t in range(40):
        near = hidden[:, max(0, t - 6) : t + 1]
        wanted = made(near, shared(made, near.shape[1]), None)[:, -1]
        torch.testing.assert_close(torch.cat(found, 1)[:, t], wanted, rtol=1e-5, atol=1e-6)


def test_in_a_training_window_attention_is_the_decoders() -> None:
    made = mixer("attention", context=12)
    theirs = DecoderAttention(16, 2, 2, 8).double()
    theirs.load_state_dict(made.state_dict())
    hidden, documents = windows(12)
    ids = torch.zeros(2, 12, dtype=torch.int64)
    for packed in (None, documents):
        found = made(hidden, made.shared(ids, 0, packed), None)
        assert torch.equal(found, theirs(hidden, theirs.shared(ids, 0, packed), None))


@pytest.mark.parametrize("name", LINEAR)
def test_what_autograd_keeps_is_counted(name: str) -> None:
    made = mixer(name, context=24, chunk=8).float()
    own, kept = {one.data_ptr() for one in made.parameters()}, dict[int, Tensor]()
    hidden = windows(24)[0].float().requires_grad_()

    def pack(one: Tensor) -> Tensor:
        if one.untyped_storage().data_ptr() not in own | {hidden.data_ptr()}:
            kept[one.untyped_storage().data_ptr()] = one
        return one

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda one: one):
        made(hidden, shared(made, 24), None)
    found = sum(one.untyped_storage().nbytes() for one in kept.values())
    assert made.activation_bytes(4) * 48 == pytest.approx(found, rel=0.1)


def test_layers_take_the_mixers_in_turn() -> None:
    model = LinearAttention(Shape(**{**TINY, "n_layer": 5, "mixers": ["gla", "attention"]}), V)
    assert [type(one).__name__ for one in model.mixers] == ["GLA", "Attention", "GLA", "Attention", "GLA"]
    assert model.unlimited
    assert not LinearAttention(Shape(**{**TINY, "n_layer": 2, "mixers": ["gla", "lsh"]}), V).unlimited


def test_wrong_shapes_are_refused_and_equal_ones_are_equal() -> None:
    assert Shape(**{**TINY, "mixers": ()}).errors() == ["mixers: at least one name is expected"]
    assert Shape(**{**TINY, "chunk": 12}).errors() == ["chunk: 12 is not a power of two"]
    odd = {**TINY, "d_head": 5}
    assert Shape(**odd).errors() == ["d_head: the rotary positions of retnet need an even head width"]
    assert Shape(**{**odd, "mixers": ("gla",)}).errors() == []
    assert "it fits encoders, not causal models" in Shape(**{**TINY, "mixers": ("linformer",)}).errors()[0]
    assert Shape(**{**TINY, "n_bucket": 3}).errors() == ["n_bucket: 3 is not even"]
    errors: list[str] = []
    strict.build(Shape, {**TINY, "mixers": ["gla", "glaa"]}, errors)
    assert len(errors) == 1
    assert errors[0].startswith("mixers[1]: ")
    assert "did you mean 'gla'" in errors[0]
    one, two = ({**TINY, "n_layer": 4, "mixers": mixers} for mixers in (["gla", "s4"], ("gla", "s4", "gla", "s4")))
    assert unlike("linear_attention", one, "linear_attention", {**two, "chunk": 16}) == {}
    assert "mixers" in unlike("linear_attention", one, "linear_attention", {**two, "mixers": ["gla"]})


@pytest.mark.parametrize("name", ROWS)
def test_it_compiles_to_one_graph_with_the_same_output(name: str) -> None:
    made = mixer(name, chunk=8).float()
    hidden = windows(24)[0].float()
    parts = shared(made, 24)
    wanted = made(hidden, parts, None)
    wanted.sum().backward()
    gradients = [one.grad.clone() for one in made.parameters()]
    made.zero_grad()
    torch.compiler.reset()
    compiled = torch.compile(made, fullgraph=True, backend="aot_eager")
    found = compiled(hidden, parts, None)
    found.sum().backward()
    torch.testing.assert_close(found, wanted)
    for one, other in zip(made.parameters(), gradients, strict=True):
        torch.testing.assert_close(one.grad, other, rtol=1e-4, atol=1e-4)
