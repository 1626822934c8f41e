"""The gradient of a prediction by each earlier input: beside finite differences, for every family; windows of texts."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
import torch

from lexmill import models
from lexmill.kinds.language_model.gradient_reach import gradient_norms, windows
from lexmill.models.declaration import families, family
from lexmill.tokenizers import Tokenizer


class _Letters:
    """A token a letter."""

    eos_id = 0

    def encode(self, text: str) -> list[int]:
        return [ord(letter) - 96 for letter in text]


def test_windows_are_cut_from_texts_in_order() -> None:
    texts = [{"text": "abcdefgh"}, {"text": "ab"}, {"text": "xyzxy"}]
    letters = cast(Tokenizer, _Letters())
    found = windows(texts, letters, 3)
    assert found.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [0, 24, 25, 26]]
    assert windows(texts, letters, 20).tolist() == [[0, 1, 2, 3, 4, 5, 6, 7, 8]]


def network(name: str) -> Any:
    torch.manual_seed(1)
    module = models.build({"family": name, "shape": dict(family(name).tiny), "vocab_size": 30}).double().eval()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return module


@pytest.mark.parametrize("name", ["decoder", "gpt", "lstm"])
def test_the_norms_are_those_of_finite_differences(name: str) -> None:
    module, generator = network(name), np.random.default_rng(0)
    tokens = generator.integers(0, 30, (2, 7))
    norms = gradient_norms(module, tokens)
    assert norms.shape == (6,)
    table, width, step = module.embedding.weight, module.shape.d_model, 1e-6

    def nats(row: int, at: int, moved: torch.Tensor) -> float:
        def move(_: Any, given: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
            changed = given[0].clone()
            changed[0, at] += moved
            return (changed,)

        handle = module.dropout.register_forward_pre_hook(move)
        logits = module(torch.from_numpy(tokens[row : row + 1, :-1]))[0, -1]
        handle.remove()
        return float(-logits.log_softmax(0)[tokens[row, -1]])

    with torch.no_grad():
        for distance, at in ((0, 5), (3, 2), (5, 0)):
            each = []
            for row in range(2):
                unit = torch.eye(width, dtype=table.dtype) * step
                each.append([(nats(row, at, one) - nats(row, at, -one)) / (2 * step) for one in unit])
            assert norms[distance] == pytest.approx(np.linalg.norm(each, axis=1).mean(), rel=1e-4)


@pytest.mark.parametrize("name", families("causal"))
def test_every_family_has_a_gradient_at_the_last_input(name: str) -> None:
    norms = gradient_norms(network(name).float(), np.arange(2, 12)[None])
    assert norms.shape == (9,)
    assert norms[0] > 0
    assert np.isfinite(norms).all()
    assert gradient_norms(network(name), np.zeros((1, 1), dtype=np.int64)).shape == (0,)
