"""Every causal family learns: a source of known entropy, to copy, and to recall where its state allows.

The networks are the tiny ones of the families, of width 32, all trained alike: AdamW, a rate that rises in 20 steps
and falls to zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks import recall
from lexmill.params.optimizers import AdamW
from lexmill.training import optimizers
from tests.support.causal_networks import SIZES, network

V, T, B, WIDTH = 6, 12, 32, 32
FIXED_STATE = {"reservoir": 0.25, "reservoir+1": 0.15, "reservoir+2": 0.02}
"""Bits above the entropy that a reservoir stays below: a leaky unit mixes the last symbol with those before by fixed
weights, which a linear read-out cannot undo. Without a leak (`reservoir+2`) it learns the source."""

FORGETFUL = {"reservoir": 0.3, "reservoir+2": 0.1, "decoder+3": 0.25}
"""Shares of right copies, where they are not above one half: what a reservoir keeps was not learned for the task; ALiBi
shows a distance by a slope alone, and logits capped at 2 learn slowly (0.42 after twice the steps)."""

SMALL_STEPS = {"s4", "mamba", "mamba2"}
"""Rows whose steps start at 0.001 to 0.1, so that they learn to write and keep more only in more and larger updates."""


def chain() -> Tensor:
    """Probabilities of a Markov chain over V symbols, (V, V): a row for each symbol, of what follows it."""
    drawn = torch.randn(V, V, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return (1.5 * drawn).softmax(-1)


def stationary(follows: Tensor) -> Tensor:
    """How often each symbol comes, (V,)."""
    return torch.linalg.matrix_power(follows, 64)[0]


def entropy(follows: Tensor) -> float:
    """Bits a symbol: those of the rows, in the stationary distribution."""
    return float(stationary(follows) @ -(follows * follows.log2()).sum(-1))


def written(follows: Tensor, rows: int, random: torch.Generator) -> Tensor:
    """Text of the chain, (rows, T + 1), from its first symbol in the stationary distribution."""
    symbols = [torch.multinomial(stationary(follows), rows, replacement=True, generator=random)]
    for _ in range(T):
        symbols.append(torch.multinomial(follows[symbols[-1]], 1, generator=random)[:, 0])
    return torch.stack(symbols, 1)


def trained(
    name: str,
    vocab_size: int,
    steps: int,
    batch: Callable[[torch.Generator], tuple[Tensor, Tensor]],
    rate: float = 0.01,
) -> Any:
    """A network after `steps` batches of tokens and targets, in eval mode."""
    random = torch.Generator().manual_seed(0)
    context = batch(torch.Generator())[0].shape[1]
    # By default the states of a reservoir are of the size of 0.1, from which a read-out learns slowly.
    fixed: dict[str, Any] = {"input_scale": 1.0} if name in FIXED_STATE else {}
    module = network(name, vocab_size, d_model=WIDTH, context=context, **fixed)
    optimizer = optimizers.build(module, AdamW("adamw", lr=0.1 if fixed else rate))
    for step in range(steps):
        optimizer.set_learning_rates(min((step + 1) / 20, 1 - step / steps))  # post-norm needs the warm-up
        tokens, targets = batch(random)
        (module.loss(tokens, targets) / (targets >= 0).sum()).backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return module.eval()


def test_the_entropy_is_what_the_true_probabilities_cost() -> None:
    follows = chain()
    text = written(follows, 20_000, torch.Generator().manual_seed(2))
    cost = -follows[text[:, :-1], text[:, 1:]].log2()
    assert float(cost.mean()) == pytest.approx(entropy(follows), abs=0.01)
    assert stationary(follows) @ follows == pytest.approx(stationary(follows))


@pytest.mark.parametrize("name", SIZES)
def test_it_learns_a_source_to_its_entropy(name: str) -> None:
    """The cost of fresh text above the entropy, in bits a symbol; the next symbol is not drawn but averaged over."""
    follows = chain()

    def batch(random: torch.Generator) -> tuple[Tensor, Tensor]:
        text = written(follows, B, random)
        return text[:, :-1], text[:, 1:]

    module = trained(name, V, 300 if name in FIXED_STATE else 120, batch, rate=0.02)
    tokens = written(follows, 256, torch.Generator().manual_seed(1))[:, :-1]
    with torch.inference_mode():
        found = module(tokens).double().log_softmax(-1) / math.log(2)  # (rows, T, V)
    wanted = follows[tokens]
    above = float((wanted * (wanted.log2() - found)).sum(-1).mean())
    assert 0 < above < FIXED_STATE.get(name, 0.02)


@pytest.mark.parametrize("name", SIZES)
def test_it_learns_to_copy(name: str) -> None:
    """Two tokens of 16 symbols after a separator; a guess is right in 1 of 16 cases."""
    steps, rate = (400, 0.02) if name in SMALL_STEPS else (160, 0.01)
    module = trained(name, recall.VOCABULARY, steps, lambda random: recall.batch("copy", 16, 2, random), rate)
    assert answered(module, "copy") > FORGETFUL.get(name, 0.5)


def answered(module: Any, task: str) -> float:
    """The share of right answers in 256 fresh sequences of length 2."""
    tokens, targets = recall.batch(task, 256, 2, torch.Generator().manual_seed(1))
    with torch.inference_mode():
        found = module(tokens).argmax(-1)
    return float((found == targets)[targets >= 0].float().mean())


@pytest.mark.parametrize("name", ["gated_deltanet"])
def test_it_learns_to_recall(name: str) -> None:
    """The values of two keys; who keeps both but not which belongs to which is right in half of the cases."""
    module = trained(name, recall.VOCABULARY, 400, lambda random: recall.batch("recall", 32, 2, random))
    assert answered(module, "recall") > 0.7
