"""Elman networks and GRUs beside their equations, one row and one step at a time, in float64."""

from __future__ import annotations

import math
import os
import platform
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from lexmill import models
from lexmill.models.common.init import GPT2, Kaiming, Recipe, Xavier, initialize
from lexmill.models.common.mixer import fused_layouts

V, D, LAYERS = 61, 16, 2
CELLS: dict[str, dict[str, Any]] = {
    "tanh": {"family": "elman", "shape": {"activation": "tanh"}},
    "relu": {"family": "elman", "shape": {"activation": "relu"}},
    "gru": {"family": "gru", "shape": {}},
}
DOCUMENTS = torch.tensor([[3] * 7 + [4] * 1 + [5] * 12, [0] * 20, [1] * 2 + [2] * 18])


def made(cell: str, **changes: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"n_layer": LAYERS, "d_model": D, "context": 12, **CELLS[cell]["shape"], **changes}
    return models.build({"family": CELLS[cell]["family"], "shape": sizes, "vocab_size": V}).eval()


def drawn(cell: str, **changes: Any) -> Any:
    """A network in float64 with weights that matter, biases too."""
    module = made(cell, **changes).double()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return module


def step(cell: str, weights: dict[str, Tensor], x: Tensor, h: Tensor) -> Tensor:
    """The equations: (D) and (D) -> (D)."""
    read, kept = weights["weight_ih_l0"] @ x + weights["bias_ih_l0"], weights["weight_hh_l0"] @ h
    if cell != "gru":
        z = read + kept + weights["bias_hh_l0"]
        return z.tanh() if cell == "tanh" else z.clamp(min=0)
    (xr, xz, xn), (hr, hz, hn) = read.chunk(3), (kept + weights["bias_hh_l0"]).chunk(3)
    reset, update = (xr + hr).sigmoid(), (xz + hz).sigmoid()
    return (1 - update) * (xn + reset * hn).tanh() + update * h


def slow_logits(cell: str, module: Any, tokens: Tensor, documents: Tensor | None = None) -> Tensor:
    """(B, T) -> (B, T, V)."""
    named = dict(module.named_parameters())
    name = "gru" if cell == "gru" else "rnn"
    layers = [
        {
            key: named[f"blocks.{layer}.{name}.{key}"]
            for key in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        }
        for layer in range(LAYERS)
    ]
    rows = []
    for b, row in enumerate(tokens):
        states, steps = [torch.zeros(D, dtype=torch.float64)] * LAYERS, []
        for t, token in enumerate(row):
            if documents is not None and t > 0 and documents[b, t] != documents[b, t - 1]:
                states = [torch.zeros(D, dtype=torch.float64)] * LAYERS
            x, before, states = named["embedding.weight"][token], states, []
            for weights, h in zip(layers, before, strict=True):
                x = step(cell, weights, x, h)
                states.append(x)
            steps.append(named["embedding.weight" if module.head is None else "head.weight"] @ x)
        rows.append(torch.stack(steps))
    return torch.stack(rows)


@pytest.mark.parametrize("documents", [None, DOCUMENTS], ids=["whole", "packed"])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("cell", CELLS)
def test_logits_and_gradients_are_those_of_the_equations(cell: str, tied: bool, documents: Tensor | None) -> None:
    module, tokens = drawn(cell, tie_embeddings=tied), torch.randint(V, (3, 20))
    found, wanted = module(tokens, documents=documents), slow_logits(cell, module, tokens, documents)
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)
    upstream = torch.randn_like(found)
    parameters = list(module.parameters())
    mine = torch.autograd.grad(found, parameters, upstream)
    for one, right in zip(mine, torch.autograd.grad(wanted, parameters, upstream), strict=True):
        torch.testing.assert_close(one, right, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("cell", CELLS)
def test_a_document_reads_as_it_does_alone(cell: str) -> None:
    module, tokens = drawn(cell), torch.randint(V, (3, 20))
    packed = module(tokens, documents=DOCUMENTS)
    for row, start, end in [(0, 0, 7), (0, 7, 8), (0, 8, 20), (1, 0, 20), (2, 0, 2), (2, 2, 20)]:
        alone = module(tokens[row : row + 1, start:end])
        torch.testing.assert_close(packed[row : row + 1, start:end], alone, rtol=1e-10, atol=1e-10)
    assert not torch.allclose(packed[0], module(tokens)[0])


@pytest.mark.parametrize("recipe", [GPT2(), Xavier(), Kaiming()], ids=lambda one: one.name)
@pytest.mark.parametrize("cell", CELLS)
def test_every_gate_is_a_matrix_of_its_own_and_relu_starts_from_the_identity(cell: str, recipe: Recipe) -> None:
    module = made(cell, n_layer=1, d_model=128)
    torch.manual_seed(1)
    initialize(module, recipe)
    std = {"gpt2": 0.02, "xavier": math.sqrt(2 / (128 + 128)), "kaiming": 1 / math.sqrt(128)}[recipe.name]
    name, gates = ("gru", 3) if cell == "gru" else ("rnn", 1)
    weights = {key: module.get_parameter(f"blocks.0.{name}.{key}_l0") for key in ("weight_ih", "weight_hh")}
    assert fused_layouts(module) == ({f"blocks.0.gru.{key}_l0": (1, 3) for key in weights} if gates == 3 else {})
    if cell == "relu":
        assert torch.equal(weights.pop("weight_hh"), torch.eye(128))
    for weight in weights.values():
        for gate in weight.chunk(gates):
            assert gate.square().mean().sqrt().item() == pytest.approx(std, rel=0.03)
    assert not any(parameter.any() for key, parameter in module.named_parameters() if "bias" in key)


@pytest.mark.parametrize(("cell", "gates"), [("tanh", 1), ("relu", 1), ("gru", 3)])
def test_parameters_and_flops_are_counted(cell: str, gates: int) -> None:
    tied, untied = made(cell), made(cell, tie_embeddings=False)
    assert tied.count_parameters() == LAYERS * gates * (2 * D * D + 2 * D) + V * D
    assert untied.count_parameters() == tied.count_parameters() + V * D
    assert tied.flops_per_token() == untied.flops_per_token() == 6 * (LAYERS * gates * 2 * D * D + V * D)


@pytest.mark.parametrize(("cell", "below"), [("tanh", 0.9), ("relu", 0.5), ("gru", 0.5)])
def test_it_carries_a_token_over_the_whole_window(cell: str, below: float) -> None:
    """It learns to name the first of twelve tokens at the last. 2.08 is a guess among eight."""
    module = made(cell, n_layer=1, d_model=32).train()
    optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
    torch.manual_seed(1)
    loss = torch.tensor(math.inf)
    for _ in range(400):
        tokens = torch.randint(8, (64, 12))
        targets = torch.full_like(tokens, -100)
        targets[:, -1] = tokens[:, 0]
        loss = module.loss(tokens, targets) / 64
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
    assert loss < below


@pytest.mark.parametrize("cell", CELLS)
def test_bf16_is_computed_in_float32_where_the_processor_has_no_kernel_for_it(
    cell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, seen, tokens = made(cell), list[Any](), torch.randint(V, (3, 20))
    for block in module.blocks:
        block.kernel.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].dtype))
        block.kernel.register_forward_hook(lambda *_: seen.append(torch.is_autocast_enabled("cpu")))
    monkeypatch.setattr("lexmill.models.common.kernel_layer.has_bf16_kernel", lambda: False)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = module.loss(tokens, tokens, DOCUMENTS)
    assert seen == [torch.float32, False] * (4 * LAYERS), "in each of four pieces"
    loss.backward()
    torch.testing.assert_close(loss, module.loss(tokens, tokens, DOCUMENTS), rtol=2e-2, atol=0)


@pytest.mark.parametrize("cell", CELLS)
def test_bfloat16_autocast_trains(cell: str) -> None:
    module, tokens = made(cell), torch.randint(V, (3, 20))
    exact = module.loss(tokens, tokens, DOCUMENTS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = module.loss(tokens, tokens, DOCUMENTS)
    loss.backward()
    torch.testing.assert_close(loss, exact, rtol=2e-2, atol=0)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in module.parameters())


def test_a_processor_with_avx2_only_trains_in_bf16() -> None:
    """oneDNN reads its variable once, so in a process of its own; on another kind of processor it does nothing."""
    code = (
        "import torch\n"
        "from lexmill import models\n"
        "from lexmill.models.common.kernel_layer import has_bf16_kernel\n"
        "tokens = torch.zeros(2, 12, dtype=torch.long)\n"
        "for family in ('elman', 'gru', 'lstm'):\n"
        "    shape = {'n_layer': 2, 'd_model': 16, 'context': 12}\n"
        "    with torch.autocast('cpu', dtype=torch.bfloat16):\n"
        "        models.build({'family': family, 'shape': shape, 'vocab_size': 61}).loss(tokens, tokens).backward()\n"
        "print(has_bf16_kernel())"
    )
    imitated = os.environ | {"DNNL_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}
    done = subprocess.run([sys.executable, "-c", code], env=imitated, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "False\n" or platform.machine() not in ("x86_64", "AMD64")
