"""Supervised tuning and direct preference optimization: losses beside slow twins, and what is learned."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lexmill import models
from lexmill.data.conversations import IGNORED, ConversationBatches, Encoded, windows
from lexmill.data.preferences import PairBatches, Pairs
from lexmill.kinds.chat_model.answers import AnswerTask
from lexmill.kinds.chat_model.preferences import PreferenceTask
from lexmill.training.task import Task, tensors

CONTEXT, VOCAB, PAD = 24, 40, 0
SHAPES: dict[str, dict[str, Any]] = {
    "gpt": {"n_layer": 2, "n_head": 2, "d_model": 16, "context": CONTEXT},
    "lstm": {"n_layer": 1, "d_model": 16, "context": CONTEXT},
    "linear_attention": {"n_layer": 1, "n_head": 2, "d_model": 16, "d_ffn": 32, "context": CONTEXT, "mixers": ["gla"]},
}


def network(family: str, seed: int = 3) -> Any:
    torch.manual_seed(seed)
    module = models.build({"family": family, "shape": SHAPES[family], "vocab_size": VOCAB})
    for parameter in module.parameters():  # large weights: what is seen by mistake moves the loss far
        torch.nn.init.normal_(parameter, std=0.3)
    return module


def talks(count: int, seed: int) -> list[Encoded]:
    generator = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        length = int(generator.integers(4, 12))
        ids = generator.integers(5, VOCAB, length)
        made.append(Encoded(ids, np.arange(length) >= length // 2))
    return made


def log_probability(module: Any, one: Encoded) -> float:
    """The log-probability of a conversation's learned tokens, token by token; the slow twin."""
    whole = 0.0
    for at in np.flatnonzero(one.learned):
        logits = module(torch.tensor(one.ids[None, :at]))[0, -1].double()
        whole += float(logits.log_softmax(0)[one.ids[at]])
    return whole


@torch.no_grad()
def run_validation(task: Task, module: Any) -> dict[str, float]:
    sums = [
        torch.as_tensor(task.validation_sums(module, tensors(batch, torch.device("cpu"))))
        for batch in task.validation_batches(0, 1)
    ]
    return task.validation_metrics(torch.stack(sums).sum(0).tolist())


@pytest.mark.parametrize("family", SHAPES)
@torch.no_grad()
def test_a_packed_batch_has_the_loss_of_its_conversations_alone(family: str) -> None:
    module, some = network(family).eval(), talks(12, 1)
    batches = ConversationBatches(some, CONTEXT, CONTEXT * 30, PAD, seed=1)
    windows_of_all = batches.windows.inputs.shape[0]
    assert windows_of_all < 12  # several in one window
    task = AnswerTask(module, batches, windows(talks(7, 2), CONTEXT, PAD))
    batch = batches.windows.rows(np.arange(windows_of_all))
    loss, count = task.loss_sum(module, tensors(batch, torch.device("cpu")))
    alone = -sum(log_probability(module, one) for one in some)
    assert float(loss) == pytest.approx(alone, rel=1e-4)
    assert int(count) == sum(int(one.learned.sum()) for one in some)
    valid = talks(7, 2)
    nats = -sum(log_probability(module, one) for one in valid)
    assert run_validation(task, module)["valid_loss"] == pytest.approx(
        nats / sum(int(one.learned.sum()) for one in valid), rel=1e-4
    )


def pairs_of(count: int, seed: int) -> Pairs:
    chosen, rejected = talks(count, seed), talks(count, seed + 100)
    return Pairs(chosen, rejected, CONTEXT, PAD)


def preference_task(module: Any, beta: float = 0.5) -> PreferenceTask:
    return PreferenceTask(module, PairBatches(pairs_of(6, 1), 6, seed=0), pairs_of(5, 2), beta)


def test_at_the_start_every_pair_costs_log_2_and_nothing_has_moved() -> None:
    module = network("gpt").eval()
    task = preference_task(module)
    loss, count = task.loss_sum(module, tensors(task.batch(0, 0, 1), torch.device("cpu")))
    assert count == 6
    assert float(loss.detach()) == pytest.approx(6 * math.log(2), rel=1e-6)
    assert run_validation(task, module) == {
        "valid_loss": pytest.approx(math.log(2)),
        "valid_accuracy": 0.5,
        "valid_margin": 0.0,
        "valid_kl": pytest.approx(0.0, abs=1e-12),
    }


@pytest.mark.parametrize("family", SHAPES)
@torch.no_grad()
def test_the_loss_of_pairs_is_that_of_the_paper(family: str) -> None:
    before, beta = network(family).eval(), 0.5
    task = preference_task(before, beta)
    module = network(family, seed=4).eval()
    pairs = task.batches.pairs
    wanted, right, margins = 0.0, 0.0, []
    for chosen, rejected in zip(pairs.chosen, pairs.rejected, strict=True):
        rewards = [beta * (log_probability(module, one) - log_probability(before, one)) for one in (chosen, rejected)]
        margins.append(rewards[0] - rewards[1])
        wanted -= math.log(1 / (1 + math.exp(-margins[-1])))
        right += margins[-1] > 0
    loss, _ = task.loss_sum(module, tensors(pairs.rows(range(6)), torch.device("cpu")))
    assert float(loss) == pytest.approx(wanted, rel=1e-4)
    task.valid = pairs
    found = run_validation(task, module)
    assert found["valid_loss"] == pytest.approx(wanted / 6, rel=1e-4)
    assert found["valid_accuracy"] == right / 6
    assert found["valid_margin"] == pytest.approx(sum(margins) / 6, rel=1e-4)


@torch.no_grad()
def test_the_divergence_is_that_of_the_distributions_at_the_answers() -> None:
    before = network("gpt").eval()
    task, module = preference_task(before), network("gpt", seed=4).eval()
    whole, tokens = 0.0, 0
    for one in task.valid.chosen:
        for at in np.flatnonzero(one.learned):
            p, q = (net(torch.tensor(one.ids[None, :at]))[0, -1].double().softmax(0) for net in (module, before))
            whole += float((p * (p / q).log()).sum())
            tokens += 1
    assert run_validation(task, module)["valid_kl"] == pytest.approx(whole / tokens, rel=1e-4)


def descend(task: Task, module: Any, steps: int, lr: float) -> None:
    optimizer = torch.optim.Adam(module.parameters(), lr)
    for step in range(steps):
        loss, count = task.loss_sum(module, tensors(task.batch(step, 0, 1), torch.device("cpu")))
        optimizer.zero_grad()
        (loss / count).backward()
        optimizer.step()


def test_preferences_are_learned_and_the_reference_stays() -> None:
    module = network("gpt")
    task = preference_task(module)
    first = {name: value.clone() for name, value in task.reference.state_dict().items()}
    task.valid = task.batches.pairs
    descend(task, module, 20, 0.01)
    found = run_validation(task, module.eval())
    assert found["valid_accuracy"] == 1
    assert found["valid_margin"] > 0.5
    assert found["valid_kl"] > 0
    assert all(torch.equal(value, first[name]) for name, value in task.reference.state_dict().items())
    assert not any(parameter.requires_grad for parameter in task.reference.parameters())


def test_only_answers_are_learned() -> None:
    """What is asked repeats one token, which a language model would learn first; here it stays as improbable."""
    module = network("gpt")
    asked = Encoded(np.array([3, 9, 9, 9, 9, 20, 21]), np.array([False] * 5 + [True] * 2))
    task = AnswerTask(
        module, ConversationBatches([asked], CONTEXT, CONTEXT, PAD, seed=0), windows([asked], CONTEXT, PAD)
    )
    descend(task, module, 60, 0.01)
    module.eval()

    def nats(target: int) -> float:
        logits: Tensor = module(torch.tensor(asked.ids[None, :target]))[0, -1]
        return float(-logits.detach().log_softmax(0)[asked.ids[target]])

    assert max(nats(5), nats(6)) < 0.1
    assert min(nats(2), nats(3), nats(4)) > 1
    assert (task.batch(0, 0, 1)["targets"] != IGNORED).sum() == 2
