"""The recurrent encoder-decoder beside its equations written out, and each score beside a loop over positions."""

from __future__ import annotations

import math
from typing import Any, get_args

import pytest
import torch
from torch import Tensor, nn

from lexmill import models
from lexmill.base import strict
from lexmill.models.common.attention import softmax_at
from lexmill.models.rnn_seq2seq.scores import score
from lexmill.models.rnn_seq2seq.shape import Score, Shape

from .test_families import V, made

SCORES = [name for name in get_args(Score) if name != "none"]


def slow_score(name: str, module: Any, s: Tensor, h: Tensor, i: int) -> Tensor:
    """The score of a state (D,) against the source's state (D,) at position i."""
    if name == "content":
        return module.strength[0] * (s @ h) / (s.norm() * h.norm())
    if name == "additive":
        hidden = module.of_state.weight @ s + module.of_state.bias + module.of_source.weight @ h
        return module.weights.weight[0] @ hidden.tanh()
    if name == "location":
        return module.matrix.weight[i] @ s + module.matrix.bias[i]
    if name == "general":
        return s @ (module.matrix.weight @ h)
    return s @ h if name == "dot" else s @ h / math.sqrt(len(s))


@pytest.mark.parametrize("name", SCORES)
def test_scores_and_weights_are_those_of_their_equations(name: Any) -> None:
    torch.manual_seed(0)
    module: Any = score(name, 6, 9).double()
    states, memory = torch.randn(2, 3, 6).double(), torch.randn(2, 5, 6).double()
    real = torch.tensor([[True] * 5, [True] * 2 + [False] * 3])
    found = softmax_at(module(states, module.keys(memory)), real[:, None])
    for b, size in enumerate((5, 2)):
        for t in range(3):
            each = torch.stack([slow_score(name, module, states[b, t], memory[b, i], i) for i in range(size)])
            torch.testing.assert_close(found[b, t, :size], each.softmax(0))
            assert not found[b, t, size:].any()


@pytest.mark.parametrize("name", SCORES)
def test_gradients_of_scores_are_those_of_differences(name: Any) -> None:
    torch.manual_seed(0)
    module: Any = score(name, 4, 5).double()
    states, memory = (torch.randn(2, size, 4, dtype=torch.float64, requires_grad=True) for size in (2, 3))
    real = torch.tensor([[True] * 3, [True, False, False]])

    def context(states: Tensor, memory: Tensor, *_: Tensor) -> Tensor:
        return softmax_at(module(states, module.keys(memory)), real[:, None]) @ memory

    assert torch.autograd.gradcheck(context, (states, memory, *module.parameters()))


def cells(layer: Any, rows: Tensor, state: tuple[Tensor, ...] | None = None) -> tuple[list[Tensor], tuple[Tensor, ...]]:
    """The states (K,) of a layer after each row (n, D_in), by torch's cell, and the last state."""
    made = {"lstm": nn.LSTMCell, "gru": nn.GRUCell, "rnn": nn.RNNCell}[layer.name](rows.size(1), layer.width)
    for key, value in layer.kernel.named_parameters():
        made.get_parameter(key.removesuffix("_l0")).copy_(value)
    found = []
    for row in rows:
        before: Any = None if state is None else (state if layer.name == "lstm" else state[0])
        after = made(row, before)
        state = after if layer.name == "lstm" else (after,)
        found.append(state[0])
    return found, state or ()


def slow_logits(module: Any, source: list[int], target: list[int]) -> Tensor:
    """(T, V), one sentence, one position at a time."""
    shape: Shape = module.shape
    order = source[::-1] if shape.reverse_source else source
    rows = module.embedding.weight[order]
    for layer in module.encoder:
        if shape.bidirectional:
            onwards, end = cells(layer.forwards, rows)
            back, start = cells(layer.backwards, rows.flip(0))
            rows = torch.stack([torch.cat(both) for both in zip(onwards, back[::-1], strict=True)])
            final = torch.cat([end[0], start[0]])
        else:
            onwards, end = cells(layer, rows)
            rows, final = torch.stack(onwards), end[0]
    memory = rows.flip(0) if shape.reverse_source else rows
    per = 2 if shape.cell == "lstm" else 1
    first = (module.bridge.weight @ final + module.bridge.bias).tanh().view(shape.decoder_layers, per, -1)
    states: list[Any] = [tuple(part) for part in first]
    fed, logits = torch.zeros(shape.d_embedding), []
    for token in target:
        row = module.embedding.weight[token]
        row = torch.cat([row, fed]) if shape.input_feeding else row
        for i, layer in enumerate(module.decoder):
            (row,), states[i] = cells(layer, row[None], states[i])
        context = final
        if shape.attention != "none":
            each = [slow_score(shape.attention, module.score, row, h, i) for i, h in enumerate(memory)]
            context = torch.stack(each).softmax(0) @ memory
        fed = (module.combine.weight @ torch.cat([context, row]) + module.combine.bias).tanh()
        logits.append(module.embedding.weight @ fed)
    return torch.stack(logits)


VARIANTS = range(len(models.family("rnn_seq2seq").variants) + 1)


@pytest.mark.parametrize("variant", VARIANTS)
@torch.no_grad()
def test_logits_are_those_of_the_equations(variant: int) -> None:
    module = made(f"rnn_seq2seq+{variant}" if variant else "rnn_seq2seq")
    torch.manual_seed(1)
    source, target = torch.randint(V, (2, 6)), torch.randint(V, (2, 5))
    mask = torch.arange(6) < torch.tensor([6, 4])[:, None]
    found = module(source, mask, target)
    for b, size in enumerate((6, 4)):
        expected = slow_logits(module, source[b, :size].tolist(), target[b].tolist())
        torch.testing.assert_close(found[b], expected, rtol=1e-4, atol=1e-5)


def test_what_contradicts_is_an_error() -> None:
    def errors(**sizes: Any) -> str:
        found: list[str] = []
        strict.build(Shape, {**models.family("rnn_seq2seq").tiny, **sizes}, found)
        return "; ".join(found)

    assert "d_model: 7 is odd" in errors(d_model=7)
    assert errors(d_model=7, bidirectional=False, reverse_source=True) == ""
    assert "a bidirectional encoder reads from both ends" in errors(reverse_source=True)


def test_training_flops_count_each_matrix_once_a_token() -> None:
    shape = Shape(1, 1, d_embedding=10, d_model=12, cell="gru", attention="general", max_positions=9)
    module = models.build({"family": "rnn_seq2seq", "shape": vars(shape), "vocab_size": V})
    reading = 2 * 3 * 6 * (10 + 6)
    writing = 3 * 12 * (10 + 12) + 12 * 12 + 24 * 10 + 10 * V
    assert module.training_flops(7, 5) == 6 * (7 * reading + 5 * writing)
