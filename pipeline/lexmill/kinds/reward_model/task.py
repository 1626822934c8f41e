"""Training a reward model by the model of Bradley and Terry (1952).

An answer w is preferred to l with probability sigmoid(r(w) - r(l)); the loss of a pair is its negative logarithm.

Shape letters: B pairs, T tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from lexmill import tokenizers
from lexmill.base import layout
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.data.conversations import IGNORED
from lexmill.data.preferences import SIDES, PairBatches, Pairs, pairs
from lexmill.kinds.reward_model import RewardModel
from lexmill.params import Params
from lexmill.training.engine import FitResult
from lexmill.training.production import Training, config_of, new_network, produce
from lexmill.training.task import Arrays, Task

_VALID_PAIRS = 16


def train(name: str, choices: Params) -> None:
    """Train `models.<name>`; raises `UserError` where a conversation has no rejected answer."""
    model = choices.models[name]
    assert isinstance(model, RewardModel)
    corpus = PreparedCorpus(layout.corpus(model.data.corpus))
    tokenizer = tokenizers.load(layout.tokenizer(model.data.tokenizer))
    train_pairs, valid_pairs = (
        pairs(corpus, split, tokenizer, model.shape.context - 1) for split in ("train", "valid")
    )
    config = config_of(model, tokenizer, tokenizer.vocab_size, reward=True)
    module = new_network(model, config, choices.training_seed)
    batches = PairBatches(train_pairs, model.recipe.batch, choices.data_seed)
    task = RewardTask(module, batches, valid_pairs)
    produce(
        Training(
            name=name,
            model=model,
            config=config,
            task=task,
            steps_per_epoch=batches.steps_per_epoch,
            metrics=lambda result: metrics(result, module, task.epochs(result.step)),
            speed=speed,
        ),
        choices,
    )


def metrics(result: FitResult, module: nn.Module, epochs: float) -> dict[str, float]:
    """Return the stage's metrics: losses in nats per pair, counts, no times."""
    return {
        "train_loss": result.train_loss,
        **result.metrics,
        "best_step": result.best_step,
        "steps": result.step,
        "epochs": epochs,
        "parameters": sum(parameter.numel() for parameter in module.parameters()),
    }


def speed(result: FitResult) -> tuple[dict[str, float], str]:
    """Return pairs per second, as a metric and as a sentence."""
    words = f"valid accuracy {result.metrics['valid_accuracy']:.3f}, {result.rate:,.0f} pairs/s"
    return {"pairs_per_second": result.rate}, words


class RewardTask(Task):
    """Nats per pair.

    Args:
        module: `module(tokens (B, T), last (B,))` returns rewards (B,).
        batches: of the train split.
        valid: the pairs of the valid split.
    """

    counted = "pairs"

    def __init__(self, module: nn.Module, batches: PairBatches, valid: Pairs) -> None:
        self.module, self.batches, self.valid = module, batches, valid

    def batch(self, step: int, rank: int, world: int) -> Arrays:
        return self.batches.rows(step, rank, world)

    def loss_sum(self, module: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, int]:
        margins = _margins(module, batch)
        return -functional.logsigmoid(margins).sum(), len(margins)

    def validation_batches(self, rank: int, world: int) -> Iterable[Arrays]:
        count = len(self.valid)
        for start in range(rank * _VALID_PAIRS, count, world * _VALID_PAIRS):
            yield self.valid.rows(range(start, min(start + _VALID_PAIRS, count)))

    def validation_sums(self, module: nn.Module, batch: Mapping[str, Tensor]) -> Sequence[float] | Tensor:
        margins = _margins(module, batch).double()
        right = (margins > 0).double().sum() + (margins == 0).double().sum() / 2
        return torch.stack(
            [-functional.logsigmoid(margins).sum(), right, margins.sum(), torch.ones_like(margins).sum()]
        )

    def validation_metrics(self, sums: Sequence[float]) -> dict[str, float]:
        loss, right, margin, count = sums
        return {"valid_loss": loss / count, "valid_accuracy": right / count, "valid_margin": margin / count}

    def epochs(self, step: int) -> float:
        return self.batches.epoch(step)


def _margins(module: Any, batch: Mapping[str, Tensor]) -> Tensor:
    """Return the reward of each chosen answer less that of the rejected one, (B,)."""
    chosen, rejected = (module(*whole(batch[f"{side}_inputs"], batch[f"{side}_targets"])) for side in SIDES)
    return chosen - rejected


def whole(inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the whole texts (B, T + 1), their end tokens included, and the place of each one's last token (B,)."""
    learned = targets != IGNORED
    last = learned.long().mul(torch.arange(1, targets.shape[1] + 1, device=targets.device)).amax(1)  # (B,)
    ends = targets.gather(1, last[:, None] - 1)  # (B, 1)
    tokens = torch.cat([inputs, inputs[:, -1:]], dim=1).scatter(1, last[:, None], ends)
    return tokens, last
