import dataclasses
import math

import pytest
import torch

from lexmill.base.errors import UserError
from lexmill.models.common.recurrent import cut
from lexmill.models.lstm.model import LSTM
from lexmill.models.lstm.shape import Shape as LSTMShape

SHAPE = LSTMShape(n_layer=2, d_model=16, context=12)
DOCUMENTS = torch.tensor([[3] * 7 + [4] * 1 + [5] * 12, [0] * 20, [1] * 2 + [2] * 18])


@pytest.fixture
def model() -> LSTM:
    torch.manual_seed(0)
    model = LSTM(SHAPE, 61).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)  # biases too
    return model


def slow_logits(model: LSTM, tokens: torch.Tensor, documents: torch.Tensor | None = None) -> torch.Tensor:
    """The equations, one row and one step at a time."""
    weights = dict(model.named_parameters())
    rows = []
    for b in range(len(tokens)):
        h = [torch.zeros(16) for _ in range(SHAPE.n_layer)]
        c = [torch.zeros(16) for _ in range(SHAPE.n_layer)]
        steps = []
        for t in range(tokens.shape[1]):
            if documents is not None and t > 0 and documents[b, t] != documents[b, t - 1]:
                h, c = [torch.zeros(16) for _ in h], [torch.zeros(16) for _ in c]
            x = weights["embedding.weight"][tokens[b, t]]
            for layer in range(SHAPE.n_layer):
                name = f"blocks.{layer}.lstm."
                gates = weights[name + "weight_ih_l0"] @ x + weights[name + "bias_ih_l0"]
                gates = gates + weights[name + "weight_hh_l0"] @ h[layer] + weights[name + "bias_hh_l0"]
                i, f, candidate, o = gates.split(16)
                c[layer] = f.sigmoid() * c[layer] + i.sigmoid() * candidate.tanh()
                x = h[layer] = o.sigmoid() * c[layer].tanh()
            steps.append(weights["embedding.weight" if model.head is None else "head.weight"] @ x)
        rows.append(torch.stack(steps))
    return torch.stack(rows)


@pytest.mark.parametrize("tied", [True, False])
def test_logits_are_those_of_the_equations(tied: bool) -> None:
    model = LSTM(dataclasses.replace(SHAPE, tie_embeddings=tied), 61).eval()
    tokens = torch.randint(61, (3, 20))
    torch.testing.assert_close(model(tokens), slow_logits(model, tokens), rtol=1e-4, atol=1e-5)


def test_the_state_is_zero_where_a_document_starts(model: LSTM) -> None:
    tokens = torch.randint(61, (3, 20))
    packed = model(tokens, documents=DOCUMENTS)
    torch.testing.assert_close(packed, slow_logits(model, tokens, DOCUMENTS), rtol=1e-4, atol=1e-5)
    for row, start, end in [(0, 0, 7), (0, 7, 8), (0, 8, 20), (1, 0, 20), (2, 0, 2), (2, 2, 20)]:
        alone = model(tokens[row : row + 1, start:end])
        torch.testing.assert_close(packed[row : row + 1, start:end], alone, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(packed[0], model(tokens)[0])
    whole = torch.arange(3)[:, None].expand(3, 20)
    assert torch.equal(model(tokens, documents=whole), model(tokens))


def test_gradients_with_documents_are_those_of_the_equations(model: LSTM) -> None:
    tokens = torch.randint(61, (3, 20))
    upstream = torch.randn(3, 20, 61)
    parameters = list(model.parameters())
    mine = torch.autograd.grad(model(tokens, documents=DOCUMENTS), parameters, upstream)
    wanted = torch.autograd.grad(slow_logits(model, tokens, DOCUMENTS), parameters, upstream)
    for found, right in zip(mine, wanted, strict=True):
        torch.testing.assert_close(found, right, rtol=1e-3, atol=1e-3)


def test_windows_are_cut_where_a_row_starts_a_document() -> None:
    pieces = cut(DOCUMENTS)
    assert [(start, end) for start, end, _ in pieces] == [(0, 2), (2, 7), (7, 8), (8, 20)]
    going_on = [None if rows is None else rows.flatten().tolist() for _, _, rows in pieces]
    assert going_on == [None, [True, True, False], [False, True, True], [False, True, True]]
    assert cut(torch.tensor([[4, 4], [7, 7]])) == [(0, 2, None)]


@pytest.mark.parametrize("cuts", [[1] * 20, [5, 1, 10, 3, 1], [20]])
def test_reading_on_from_a_state_is_reading_at_once(model: LSTM, cuts: list[int]) -> None:
    """Past the context of 12 too."""
    assert model.unlimited
    tokens = torch.randint(61, (2, 20))
    cache, start, pieces = model.new_cache(2), 0, []
    for width in cuts:
        pieces.append(model(tokens[:, start : start + width], cache))
        start += width
    assert cache.length == 20
    torch.testing.assert_close(torch.cat(pieces, dim=1), model(tokens), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="at least one sequence"):
        model.new_cache(0)


def test_dropout_acts_only_in_training() -> None:
    model = LSTM(dataclasses.replace(SHAPE, dropout=0.5), 61)
    tokens = torch.randint(61, (2, 12))
    assert not torch.allclose(model(tokens), model(tokens))
    model.eval()
    assert torch.equal(model(tokens), model(tokens))


def test_the_start_is_near_a_uniform_guess() -> None:
    model = LSTM(SHAPE, 61)
    tokens, targets = torch.randint(61, (2, 4, 12))
    nats = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
    assert abs(nats.item() - math.log(61)) < 0.1


def test_it_carries_a_token_over_the_whole_window() -> None:
    """It learns to name the first of twelve tokens at the last: the state holds what lies far back."""
    torch.manual_seed(1)
    model = LSTM(dataclasses.replace(SHAPE, n_layer=1, d_model=32), 8)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loss = torch.tensor(math.inf)
    for _ in range(400):
        tokens = torch.randint(8, (64, 12))
        targets = torch.full_like(tokens, -100)
        targets[:, -1] = tokens[:, 0]
        loss = model.loss(tokens, targets) / 64
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert loss < 0.5  # log 8 = 2.08 for a guess; two tokens that are confused leave 0.2


def test_parameters_and_flops_are_counted() -> None:
    tied = LSTM(SHAPE, 50)
    assert tied.count_parameters() == 2 * (8 * 16 * 16 + 8 * 16) + 50 * 16
    assert tied.flops_per_token() == 6 * (2 * 8 * 16 * 16 + 50 * 16)
    untied = LSTM(dataclasses.replace(SHAPE, tie_embeddings=False), 50)
    assert untied.count_parameters() == tied.count_parameters() + 50 * 16
    assert untied.flops_per_token() == tied.flops_per_token()


def test_tensor_parallelism_is_refused(model: LSTM) -> None:
    with pytest.raises(UserError, match="use strategy: ddp or fsdp"):
        model.tensor_parallel_plan()


def test_bfloat16_autocast_trains(model: LSTM) -> None:
    tokens = torch.randint(61, (3, 20))
    exact = model.loss(tokens, tokens, DOCUMENTS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model.loss(tokens, tokens, DOCUMENTS)
        torch.testing.assert_close(model.loss(tokens, tokens), model.loss(tokens, tokens, DOCUMENTS * 0))
    loss.backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(loss, exact, rtol=2e-2, atol=0)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_bf16_is_computed_in_float32_where_the_processor_has_no_kernel_for_it(
    model: LSTM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch has no other answer there than a RuntimeError about a primitive descriptor."""
    seen, tokens = [], torch.randint(61, (3, 20))
    for block in model.blocks:
        block.lstm.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].dtype))  # type: ignore[union-attr,operator]
        block.lstm.register_forward_hook(lambda *_: seen.append(torch.is_autocast_enabled("cpu")))  # type: ignore[union-attr,operator]
    monkeypatch.setattr("lexmill.models.common.kernel_layer.has_bf16_kernel", lambda: False)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model.loss(tokens, tokens, torch.zeros_like(tokens))
    assert seen == [torch.float32, False] * SHAPE.n_layer
    loss.backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(loss, model.loss(tokens, tokens), rtol=2e-2, atol=0)
