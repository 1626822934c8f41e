"""The bidirectional encoder beside torch's own on packed sequences, and what its padding may not do."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from lexmill import models
from lexmill.models.birnn.shape import Shape
from lexmill.models.common.bidirectional import reverse_order

LENGTHS = [7, 2, 5, 1]
TORCH: dict[str, type[nn.RNNBase]] = {"elman": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}


def network(cell: str, dropout: float = 0.0) -> Any:
    shape = dataclasses.asdict(Shape(n_layer=2, d_embedding=6, d_state=5, cell=cell, dropout=dropout, max_positions=9))  # type: ignore[arg-type]
    torch.manual_seed(0)
    module = models.build({"family": "birnn", "shape": shape, "vocab_size": 11})
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    return module


def batch() -> tuple[Any, Any]:
    torch.manual_seed(1)
    tokens = torch.randint(11, (len(LENGTHS), max(LENGTHS)))
    return tokens, torch.arange(max(LENGTHS))[None] < torch.tensor(LENGTHS)[:, None]


@pytest.mark.parametrize("cell", ["elman", "lstm", "gru"])
def test_it_is_torchs_own_on_packed_sequences(cell: str) -> None:
    module, (tokens, mask) = network(cell), batch()
    twin: Any = TORCH[cell](6, 5, num_layers=2, bidirectional=True, batch_first=True)  # type: ignore[arg-type]
    for i, layer in enumerate(module.layers):
        for side, suffix in ((layer.forwards, ""), (layer.backwards, "_reverse")):
            for name, value in side.kernel.named_parameters():
                twin.get_parameter(name.replace("l0", f"l{i}{suffix}")).data.copy_(value)
    packed = pack_padded_sequence(
        module.embedding(tokens), torch.tensor(LENGTHS), batch_first=True, enforce_sorted=False
    )
    wanted, _ = pad_packed_sequence(twin(packed)[0], batch_first=True)
    found = module.hidden(tokens, mask)
    assert found.shape == (len(LENGTHS), 7, module.d_model)
    torch.testing.assert_close(found[mask], wanted[mask], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("cell", ["elman", "lstm", "gru"])
def test_padding_changes_neither_states_nor_gradients(cell: str) -> None:
    module, (tokens, mask) = network(cell), batch()
    other = torch.where(mask, tokens, (tokens + 1) % 11)
    found = [module.hidden(one, mask)[mask] for one in (tokens, other)]
    assert torch.equal(*found)
    gradients = [torch.autograd.grad(one.square().sum(), module.layers.parameters()) for one in found]
    for one, two in zip(*gradients, strict=True):
        assert torch.equal(one, two)
    for row, length in enumerate(LENGTHS):
        alone = module.hidden(tokens[row : row + 1, :length], mask[row : row + 1, :length])
        torch.testing.assert_close(module.hidden(tokens, mask)[row, :length], alone[0], rtol=1e-5, atol=1e-6)


def test_each_state_depends_on_both_sides() -> None:
    module, (tokens, mask) = network("gru"), batch()
    for changed, seen in ((0, 6), (6, 0)):
        other = tokens.clone()
        other[0, changed] = (other[0, changed] + 1) % 11
        assert not torch.allclose(module.hidden(tokens, mask)[0, seen], module.hidden(other, mask)[0, seen])


def test_a_classifier_on_it_reads_each_text_alone() -> None:
    shape = dataclasses.asdict(Shape(n_layer=1, d_embedding=6, d_state=5))
    torch.manual_seed(0)
    config = {"family": "birnn", "shape": shape, "vocab_size": 11, "labels": ["a", "b", "c"], "dropout": 0.0}
    module, (tokens, mask) = models.build(config).eval(), batch()
    logits = module(tokens, mask)
    assert logits.shape == (len(LENGTHS), 3)
    for row, length in enumerate(LENGTHS):
        alone = module(tokens[row : row + 1, :length], mask[row : row + 1, :length])
        torch.testing.assert_close(logits[row], alone[0], rtol=1e-5, atol=1e-6)


def test_reversing_twice_changes_nothing() -> None:
    _, mask = batch()
    order = reverse_order(mask)
    assert order[1].tolist() == [1, 0, 2, 3, 4, 5, 6]
    assert torch.equal(order.gather(1, order), torch.arange(7).expand(4, 7))


def test_an_lstm_begins_with_open_forget_gates_and_other_biases_are_zero() -> None:
    shape = dataclasses.asdict(Shape(n_layer=1, d_embedding=6, d_state=5))
    module: Any = models.build({"family": "birnn", "shape": shape, "vocab_size": 11})
    for side in (module.layers[0].forwards, module.layers[0].backwards):
        assert side.kernel.bias_ih_l0.tolist() == [0.0] * 5 + [1.0] * 5 + [0.0] * 10
        assert not side.kernel.bias_hh_l0.any()


def test_dropout_acts_in_training_only() -> None:
    module, (tokens, mask) = network("lstm", dropout=0.5), batch()
    module.train()
    assert not torch.equal(module.hidden(tokens, mask), module.hidden(tokens, mask))
    module.eval()
    assert torch.equal(module.hidden(tokens, mask), module.hidden(tokens, mask))
