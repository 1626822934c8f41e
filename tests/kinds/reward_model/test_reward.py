"""Reward models: the loss of Bradley and Terry beside a slow twin, rewards independent of the batch, the command."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any, cast

import numpy as np
import pytest
import torch
import typer
from typer.testing import CliRunner

from lexmill import models, tokenizers
from lexmill.base.errors import UserError
from lexmill.data.conversations import Encoded, encode
from lexmill.data.preferences import PairBatches, Pairs
from lexmill.evaluation.bootstrap import Resampling
from lexmill.evaluation.significance import compare
from lexmill.kinds.reward_model import command
from lexmill.kinds.reward_model.metrics import TEST, summarise
from lexmill.kinds.reward_model.predict import Predictor, rewards
from lexmill.kinds.reward_model.task import RewardTask, whole
from lexmill.kinds.verbs import Use
from lexmill.tokenizers.kinds import assemble, byte_model
from lexmill.tokenizers.saving import save
from lexmill.training.task import tensors

CONTEXT = 64
CONFIG = {
    "family": "gpt",
    "shape": {"n_layer": 1, "n_head": 2, "d_model": 16, "context": CONTEXT},
    "vocab_size": 261,
    "reward": True,
}
CPU = torch.device("cpu")


def network(seed: int = 1) -> Any:
    torch.manual_seed(seed)
    module = models.build(CONFIG)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return module.eval()


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> tokenizers.Tokenizer:
    made = tmp_path_factory.mktemp("tokenizer")
    save(assemble("byte", byte_model(), lowercase=False), made)
    return tokenizers.load(made)


def talk(asked: str, answer: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]


def side(tokenizer: tokenizers.Tokenizer, *answers: str) -> list[Encoded]:
    return encode(tokenizer, [talk(f"{i}?", answer) for i, answer in enumerate(answers)])


def alone(module: Any, one: Encoded) -> float:
    """The reward of one text, from its last token; the slow twin."""
    hidden = module.encoder.hidden(torch.tensor(one.ids[None, -CONTEXT:]))[0, -1]
    return float(hidden @ module.head.weight[0])


def test_a_new_head_gives_no_reward() -> None:
    torch.manual_seed(1)
    module = models.build(CONFIG)
    assert torch.equal(module(torch.ones(2, 5, dtype=torch.int64), torch.tensor([1, 4])), torch.zeros(2))


@torch.no_grad()
def test_the_loss_is_that_of_bradley_and_terry(tokenizer: tokenizers.Tokenizer) -> None:
    module = network()
    chosen = side(tokenizer, "Yes.", "A long answer, " * 8, "é")
    rejected = side(tokenizer, "No, never.", "x", "")
    pairs = Pairs(chosen, rejected, CONTEXT - 1, tokenizer.pad_id)
    task = RewardTask(module, PairBatches(pairs, 3, seed=0), pairs)
    margins = [alone(module, one) - alone(module, other) for one, other in zip(chosen, rejected, strict=True)]
    wanted = sum(math.log1p(math.exp(-margin)) for margin in margins)
    loss, count = task.loss_sum(module, tensors(pairs.rows([0, 1, 2]), CPU))
    assert count == 3
    assert float(loss) == pytest.approx(wanted, rel=1e-4)
    (batch,) = task.validation_batches(0, 1)
    found = task.validation_metrics(torch.as_tensor(task.validation_sums(module, tensors(batch, CPU))).tolist())
    assert found == {
        "valid_loss": pytest.approx(wanted / 3, rel=1e-4),
        "valid_accuracy": sum(margin > 0 for margin in margins) / 3,
        "valid_margin": pytest.approx(sum(margins) / 3, rel=1e-4),
    }


def test_whole_texts_end_with_the_end_token(tokenizer: tokenizers.Tokenizer) -> None:
    some = side(tokenizer, "Yes.", "")
    batch = tensors(Pairs(some, some, CONTEXT - 1, tokenizer.pad_id).rows([0, 1]), CPU)
    tokens, last = whole(batch["chosen_inputs"], batch["chosen_targets"])
    for row, at, one in zip(tokens.tolist(), last.tolist(), some, strict=True):
        assert row[: at + 1] == one.ids.tolist()
        assert set(row[at + 1 :]) <= {tokenizer.pad_id}


@torch.no_grad()
def test_a_reward_does_not_depend_on_the_batch(tokenizer: tokenizers.Tokenizer) -> None:
    module = network()
    talks = [talk("How?", "So."), talk("Why?", "Because of this. " * 9), talk("", "")]
    found = rewards(module, tokenizer, talks, 10_000)
    assert found == pytest.approx([alone(module, one) for one in encode(tokenizer, talks)], rel=1e-4)
    assert found == pytest.approx([rewards(module, tokenizer, [one], 1)[0] for one in talks], rel=1e-5)


def test_the_better_answer_is_learned(tokenizer: tokenizers.Tokenizer) -> None:
    module = network()
    pairs = Pairs(side(tokenizer, *["Yes."] * 8), side(tokenizer, *["No."] * 8), CONTEXT - 1, tokenizer.pad_id)
    task = RewardTask(module, PairBatches(pairs, 8, seed=0), pairs)
    optimizer = torch.optim.Adam(module.parameters(), 0.01)
    for step in range(30):
        loss, _ = task.loss_sum(module, tensors(task.batch(step, 0, 1), CPU))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    yes, no = rewards(module, tokenizer, [talk("4?", "Yes."), talk("4?", "No.")], 100)
    assert yes > no + 1


def test_the_predictor_reads_messages_as_json(tokenizer: tokenizers.Tokenizer) -> None:
    module = network()
    predictor = Predictor("reward", {"kind": "reward_model"}, module, tokenizer)
    talks = [talk("How?", "So."), talk("Why?", "é")]
    assert predictor.predict([json.dumps(one) for one in talks]) == rewards(module, tokenizer, talks, 100)
    for wrong in ("So.", "[]", '[{"role": "bot", "content": "a"}]', '[{"role": "user", "content": 1}]', '{"a": 1}'):
        with pytest.raises(UserError, match="is not a list of messages in JSON"):
            predictor.predict([wrong])


def test_metrics_and_the_paired_test_by_hand() -> None:
    values = [(1.0, 0.0), (0.0, 1.0), (2.0, 2.0), (3.0, 1.0)]
    rows = [
        {"id": str(i), "group": str(i), "chosen": one, "rejected": other, "text_sha256": str(i)}
        for i, (one, other) in enumerate(values * 15)
    ]
    how = Resampling(samples=100, confidence=0.9, seed=1)
    assert summarise(rows, "conversation", how)["preference_accuracy"] == 2.5 / 4
    worse = [{**row, "chosen": 0.0, "rejected": 1.0} for row in rows]
    found = compare(TEST, rows, worse, how)
    assert (found.difference, found.better) == (0.625, True)
    with pytest.raises(UserError, match="test split is empty"):
        summarise([], "conversation", how)


class _Lengths:
    """Rewards an answer by its length."""

    def model(self, kind: str, name: str | None) -> _Lengths:
        assert (kind, name) == ("reward_model", None)
        return self

    def predict(self, texts: list[str]) -> list[float]:
        talks = [json.loads(text) for text in texts]
        assert {one[0]["content"] for one in talks} == {"Be brief."}
        assert {one[1]["content"] for one in talks} == {"How?"}
        return [float(len(one[2]["content"])) for one in talks]

    def show(self, lines: Iterable[str]) -> None:
        print("\n".join(lines))


def test_the_command_shows_the_best_answer_first() -> None:
    app = typer.Typer()
    command.add(app, cast(Use, _Lengths()))
    result = CliRunner().invoke(app, ["How?", "a", "a\tlong\none", "--system", "Be brief."], catch_exceptions=False)
    assert result.exit_code == 0
    assert result.stdout == "10.0000\ta\\tlong\\none\n1.0000\ta\n"


def test_pairs_of_arrays_hold_integers(tokenizer: tokenizers.Tokenizer) -> None:
    some = side(tokenizer, "a")
    found = Pairs(some, some, 8, tokenizer.pad_id).rows([0])
    assert {array.dtype for array in found.values()} == {np.dtype(np.int64)}
