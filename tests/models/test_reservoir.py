"""Echo state networks: what is drawn, the leaky update, the echo state property, what training leaves alone."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from lexmill import models
from lexmill.base.errors import UserError
from lexmill.models import folder
from lexmill.models.common.init import GPT2, Kaiming, Recipe, Xavier, initialize
from lexmill.models.common.state import snapshot
from lexmill.models.reservoir.model import Reservoir, spectral_radius
from lexmill.models.reservoir.shape import Shape
from lexmill.params.optimizers import AdamW
from lexmill.training import optimizers

V, D = 31, 40
SHAPE = Shape(n_layer=2, d_model=D, context=12, spectral_radius=0.8, sparsity=0.7, leak=0.3, input_scale=0.25)
FIXED = ["blocks.0.from_input", "blocks.0.from_state", "blocks.1.from_input", "blocks.1.from_state"]


def made(**changes: Any) -> Reservoir:
    torch.manual_seed(0)
    return Reservoir(dataclasses.replace(SHAPE, **changes), V).eval()


@pytest.mark.parametrize("recipe", [GPT2(), Xavier(), Kaiming()], ids=lambda one: one.name)
@pytest.mark.parametrize(("radius", "sparsity"), [(0.8, 0.7), (1.25, 0.0), (0.5, 0.95)])
def test_radius_sparsity_and_input_scale_are_as_set(recipe: Recipe, radius: float, sparsity: float) -> None:
    model = made(spectral_radius=radius, sparsity=sparsity)
    initialize(model, recipe)
    for block in model.blocks:
        recurrent, given = block.from_state, block.from_input
        assert isinstance(recurrent, Tensor)
        assert isinstance(given, Tensor)
        assert spectral_radius(recurrent) == pytest.approx(radius, rel=1e-5)
        assert (recurrent == 0).sum() == round(sparsity * D * D)
        assert given.abs().max() <= 0.25
        assert given.std() == pytest.approx(0.25 / 3**0.5, rel=0.05)


def test_the_spectral_radius_of_a_rotation_and_of_a_triangle() -> None:
    assert spectral_radius(torch.tensor([[0.0, -3.0], [3.0, 0.0]])) == pytest.approx(3)  # eigenvalues 3i and -3i
    assert spectral_radius(torch.tensor([[0.5, 9.0], [0.0, -2.0]])) == pytest.approx(2)


def test_a_reservoir_without_a_loop_is_refused() -> None:
    with pytest.raises(UserError, match=r"with 0.99 of its weights 0 a reservoir of 8 units has no loop"):
        made(d_model=8, sparsity=0.99)


def slow_hidden(model: Reservoir, tokens: Tensor, documents: Tensor | None = None) -> Tensor:
    """The equations, one row, one step and one unit at a time: (B, T) -> (B, T, D)."""
    table, leak, rows = model.embedding.weight, model.shape.leak, []
    for b, row in enumerate(tokens):
        states, steps = [torch.zeros(D, dtype=table.dtype) for _ in model.blocks], []
        for t, token in enumerate(row):
            if documents is not None and t > 0 and documents[b, t] != documents[b, t - 1]:
                states = [torch.zeros_like(state) for state in states]
            x = table[token]
            for layer, block in enumerate(model.blocks):
                h = states[layer]
                read, kept = block.from_input, block.from_state
                assert isinstance(read, Tensor)
                assert isinstance(kept, Tensor)
                sums = [(read[i] * x).sum() + (kept[i] * h).sum() for i in range(D)]
                units = [(1 - leak) * h[i] + leak * sums[i].tanh() for i in range(D)]
                x = states[layer] = torch.stack(units)
            steps.append(x)
        rows.append(torch.stack(steps))
    return torch.stack(rows)


@pytest.mark.parametrize("leak", [0.3, 1.0])
@pytest.mark.parametrize("packed", [False, True])
def test_the_leaky_update_is_the_equation(leak: float, packed: bool) -> None:
    model = made(leak=leak, train_embedding=True).double()
    tokens = torch.randint(V, (2, 8))
    documents = torch.tensor([[0] * 3 + [1] * 5, [0] * 8]) if packed else None
    found, wanted = model.hidden(tokens, documents=documents), slow_hidden(model, tokens, documents)
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)
    upstream = torch.randn_like(found)
    (one,) = torch.autograd.grad(found, model.embedding.weight, upstream)
    (right,) = torch.autograd.grad(wanted, model.embedding.weight, upstream)
    torch.testing.assert_close(one, right, rtol=1e-9, atol=1e-12)


def apart(radius: float, leak: float) -> float:
    """The distance of two states after 200 equal tokens, to that at first."""
    model: Any = made(n_layer=1, spectral_radius=radius, leak=leak, input_scale=0.01)
    tokens, caches = torch.randint(V, (1, 200)), [model.new_cache(1), model.new_cache(1)]
    states = [torch.rand(1, 1, D) - 0.5 for _ in caches]
    with torch.no_grad():
        for cache, state in zip(caches, states, strict=True):
            cache.layers[0].memory = (state,)
            model.hidden(tokens, cache)
    after = [cache.layers[0].memory[0] for cache in caches]
    return float((after[0] - after[1]).norm() / (states[0] - states[1]).norm())


def test_below_a_radius_of_1_the_state_forgets_where_it_started() -> None:
    assert apart(0.8, 1.0) < 1e-6
    assert apart(0.8, 0.3) < 1e-4
    assert apart(1.8, 1.0) > 0.1


@pytest.mark.parametrize("train_embedding", [False, True])
def test_training_changes_the_read_out_and_no_fixed_weight(train_embedding: bool) -> None:
    model = made(train_embedding=train_embedding, dropout=0.1).train()
    before, built = snapshot(model), optimizers.build(model, AdamW("adamw", lr=0.02))
    trained = {"head.weight", "embedding.weight"} if train_embedding else {"head.weight"}
    assert {key.partition("/")[0] for key, _ in model.named_parameters()} == trained
    assert model.count_parameters() == len(trained) * V * D
    tokens, losses = torch.randint(V, (4, 13)), []
    for _ in range(60):
        loss = model.loss(tokens[:, :-1], tokens[:, 1:]) / 48
        torch.autograd.backward(loss)
        built.step()
        built.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    assert {key.partition("/")[0] for key in built.named_state()} == trained
    after = snapshot(model)
    assert set(after) == {"embedding.weight", "head.weight", *FIXED}
    assert {key for key in after if not torch.equal(after[key], before[key])} == trained


def test_a_fixed_reservoir_has_no_way_back() -> None:
    model, tokens = made(), torch.randint(V, (2, 12))
    assert not model.hidden(tokens).requires_grad
    assert made(train_embedding=True).hidden(tokens).requires_grad


def test_flops_by_hand() -> None:
    assert made().flops_per_token() == 6 * V * D + 2 * 2 * 2 * D * D
    assert made(train_embedding=True).flops_per_token() == 6 * V * D + 2 * 2 * 2 * 2 * D * D


def test_a_stored_model_reads_the_same_though_it_draws_another_reservoir(tmp_path: Path) -> None:
    model = made()
    shape = dataclasses.asdict(SHAPE)
    config = {"kind": "language_model", "family": "reservoir", "shape": shape, "vocab_size": V}
    folder.save(tmp_path / "model", config, model)
    torch.manual_seed(1)
    other: Any = models.build(config)
    _, loaded = folder.load(tmp_path / "model")
    tokens = torch.randint(V, (2, 12))
    assert torch.equal(loaded.eval()(tokens), model(tokens))
    assert not torch.allclose(other.eval()(tokens), model(tokens))
